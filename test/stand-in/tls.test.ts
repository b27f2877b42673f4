import { Agent, request } from 'undici';
import { expect, it } from 'vitest';
import { makeCertificate } from '../support/certificate.ts';
import { standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

it('the stand-in behaves and misbehaves over TLS as well', async () => {
  const { key, cert } = makeCertificate();
  const standIn = await startStandIn({ tls: { key, cert } });
  const agent = new Agent({ connect: { ca: cert }, connections: 1 });
  const read = async () => {
    const answer = await request(`${standIn.url}/users/api-keys/`, {
      dispatcher: agent,
      headers: { 'x-api-key': standInKey },
    });
    await answer.body.dump();
    return answer.statusCode;
  };
  try {
    expect(standIn.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+\/api$/);
    expect(await read()).toBe(200);
    standIn.behave({ status: 500 }, 1);
    expect(await read()).toBe(500);
    standIn.behave({ resetAt: 'before-headers' }, 1);
    await expect(read()).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect(await read()).toBe(200);
  } finally {
    await agent.destroy();
    await standIn.close();
  }
});

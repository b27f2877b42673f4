/** Health probes: short plain text, without credentials and for any well-formed `Host`. They are not logged. */
import { documentFields } from './reply-fields.ts';

/**
 * @param problem why the answer is no (503), or `undefined` for yes (200)
 * @param endsConnection whether the connection is to end with the reply
 */
export function answerProbe(problem: string | undefined, endsConnection: boolean): Response {
  return new Response(problem === undefined ? 'ok\n' : `${problem}\n`, {
    status: problem === undefined ? 200 : 503,
    headers: { ...documentFields, ...(endsConnection ? { connection: 'close' } : {}) },
  });
}

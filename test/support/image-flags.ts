/** The flags of Node that the image serves with, so that tests start the built program as it is deployed. */
import { readFileSync } from 'node:fs';

const dockerfile = new URL('../../Dockerfile', import.meta.url);

/**
 * Reads them from the `ENTRYPOINT` of the Dockerfile: everything between `node` and `--`, after
 * which the program stands.
 *
 * @throws Error where the Dockerfile has no `ENTRYPOINT` of that form
 */
export function imageFlags(): string[] {
  const entrypoint = /^ENTRYPOINT (\[.*\])$/m.exec(readFileSync(dockerfile, 'utf8'))?.[1];
  const words = entrypoint === undefined ? [] : (JSON.parse(entrypoint) as string[]);
  if (words[0] !== 'node' || words.slice(-2).join(' ') !== '-- /app/dist/main.js')
    throw new Error('the Dockerfile has no ENTRYPOINT that runs -- /app/dist/main.js');
  return words.slice(1, -2);
}

/** The flags of Node that the image serves with, so that tests start the built program as it is deployed. */
import { readFileSync } from 'node:fs';

const dockerfile = new URL('../../Dockerfile', import.meta.url);

/**
 * Reads them from the `CMD` of the Dockerfile: everything between `node` and the program.
 *
 * @throws Error where the Dockerfile has no `CMD` of that form
 */
export function imageFlags(): string[] {
  const command = /^CMD (\[.*\])$/m.exec(readFileSync(dockerfile, 'utf8'))?.[1];
  const words = command === undefined ? [] : (JSON.parse(command) as string[]);
  const program = words.indexOf('dist/main.js');
  if (words[0] !== 'node' || program === -1)
    throw new Error('the Dockerfile has no CMD that runs dist/main.js');
  return words.slice(1, program);
}

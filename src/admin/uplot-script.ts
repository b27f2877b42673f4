/** The charts' library as a text for the page. The build puts the text in place of this file. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const file = createRequire(import.meta.url).resolve('uplot/dist/uPlot.iife.min.js');

export const uplotScript = readFileSync(file, 'utf8');

/** What the console's page carries. */
import { bundlePage, type PageTexts } from './bundle.ts';

export const { script, style }: PageTexts = await bundlePage('console');

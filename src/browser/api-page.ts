/** What the API page carries; its style is that of all documents. */
import { bundlePage, type PageTexts } from './bundle.ts';

export const { script, style }: PageTexts = await bundlePage('api-page');

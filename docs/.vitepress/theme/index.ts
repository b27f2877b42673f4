/** VitePress' own theme, and diagrams. */
import type { Theme } from 'vitepress';
import base from 'vitepress/theme-without-fonts';
import { MermaidDiagram } from './mermaid-diagram.ts';
import './diagram.css';

export default {
  extends: base,
  enhanceApp({ app }) {
    app.component('MermaidDiagram', MermaidDiagram);
  },
} satisfies Theme;

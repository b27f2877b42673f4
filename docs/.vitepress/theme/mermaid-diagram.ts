/** Draws a Mermaid diagram in the reader's browser; until then, and without scripts, its text stands there. */
import library from 'mermaid/dist/mermaid.min.js?url';
import { useData } from 'vitepress';
import { defineComponent, h, onMounted, ref, watch } from 'vue';

interface Mermaid {
  initialize(options: object): void;
  render(id: string, text: string): Promise<{ readonly svg: string }>;
}

let drawn = 0;
let loading: Promise<Mermaid> | undefined;

/** The library as its makers have bundled it, fetched by the first page that has a diagram. */
function loaded(): Promise<Mermaid> {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = library;
    script.onload = () => resolve((globalThis as unknown as { mermaid: Mermaid }).mermaid);
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

export const MermaidDiagram = defineComponent({
  props: { source: { type: String, required: true } },
  setup(props) {
    const { isDark } = useData();
    const text = decodeURIComponent(props.source);
    const svg = ref('');
    const draw = async (): Promise<void> => {
      const mermaid = await loaded();
      mermaid.initialize({ startOnLoad: false, theme: isDark.value ? 'dark' : 'neutral' });
      drawn += 1;
      svg.value = (await mermaid.render(`diagram-${drawn}`, text)).svg;
    };
    onMounted(() => {
      void draw();
      watch(isDark, () => void draw());
    });
    return () => (svg.value === '' ? h('pre', text) : h('div', { class: 'diagram', innerHTML: svg.value }));
  },
});

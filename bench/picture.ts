/** The picture for docs/performance.md: CPU time per request as bars, made from the results. Pure. */
import { figure, names, type Results } from './report.ts';
import type { Measured } from './rounds.ts';

const width = 720;
const labelWidth = 230;
const barHeight = 18;
const rowHeight = 26;

/** Readable on light and dark pages alike. */
export function pictureOf(results: Results): string {
  const groups: [string, readonly Measured[]][] = [
    ['A hit: CPU time per request, µs', results.hits],
    ['Passing through: CPU time per request, µs', results.passThrough],
  ];
  let y = 0;
  const parts: string[] = [];
  for (const [title, list] of groups) {
    y += 28;
    parts.push(`<text class="title" x="0" y="${y}">${title}</text>`);
    y += 12;
    const most = Math.max(...list.map(({ cpuUsPerRequest }) => cpuUsPerRequest));
    for (const { name, cpuUsPerRequest } of list) {
      const length = Math.max(2, Math.round((cpuUsPerRequest / most) * (width - labelWidth - 60)));
      const kind = name.startsWith('the gateway') ? 'ours' : 'theirs';
      const middle = y + barHeight - 5;
      parts.push(
        `<text x="${labelWidth - 8}" y="${middle}" text-anchor="end">${escaped(names[name] ?? name)}</text>`,
        `<rect class="${kind}" x="${labelWidth}" y="${y}" width="${length}" height="${barHeight}" rx="2"/>`,
        `<text x="${labelWidth + length + 6}" y="${middle}">${figure(cpuUsPerRequest)}</text>`,
      );
      y += rowHeight;
    }
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${y + 8}" width="${width}" height="${y + 8}" role="img" aria-label="CPU time per request of the gateway and its peers">
<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.ours { fill: #0969da }
.theirs { fill: #8c959f }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .ours { fill: #4493f8 } .theirs { fill: #6e7681 } }
</style>
${parts.join('\n')}
</svg>
`;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

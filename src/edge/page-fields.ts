/** The response fields of a page: what a browser may load, run and apply of it. */
import { hash } from 'node:crypto';

/**
 * A page loads nothing from elsewhere. Its style, and scripts that are admitted by their digests (CSP level 3 section
 * 2.3.1), stand in the page itself; where it has scripts, they may send requests to its own origin.
 */
export function pageFields(style: string, scripts: readonly string[]): Readonly<Record<string, string>> {
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': [
      "default-src 'none'",
      ...(scripts.length === 0
        ? []
        : [`script-src ${scripts.map(sourceDigest).join(' ')}`, "connect-src 'self'"]),
      `style-src ${sourceDigest(style)}`,
      'img-src data:',
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join('; '),
    'cross-origin-opener-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
  };
}

function sourceDigest(text: string): string {
  return `'sha256-${hash('sha256', text, 'base64')}'`;
}

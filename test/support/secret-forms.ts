/** Every dress in which the key could leave, made here independently of the gateway's own scrubber. */
import { brotliDecompressSync, gunzipSync } from 'node:zlib';

export interface SecretForm {
  readonly name: string;
  readonly text: string;
}

const known = new Map<string, readonly SecretForm[]>();

/** Made once for each secret: some tests look for the same one in thousands of texts. */
export function formsOf(secret: string): readonly SecretForm[] {
  const forms = known.get(secret) ?? makeForms(secret);
  known.set(secret, forms);
  return forms;
}

function makeForms(secret: string): SecretForm[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString('hex');
  const forms: SecretForm[] = [
    { name: 'raw', text: secret },
    { name: 'hex', text: hex },
    { name: 'HEX', text: hex.toUpperCase() },
    { name: 'percent', text: encodeURIComponent(secret) },
    {
      name: 'percent lower',
      text: encodeURIComponent(secret).replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()),
    },
    { name: 'percent all', text: hex.replace(/../g, '%$&') },
    { name: 'JSON', text: JSON.stringify(secret).slice(1, -1) },
    {
      name: 'JSON escapes',
      text: [...secret].map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''),
    },
  ];
  // Base64 shows a text in one of three alignments. The first characters depend on the bytes before it as well, the last
  // one on those after it; with one character less it would be found where the secret's last byte is another.
  for (const encoding of ['base64', 'base64url'] as const) {
    for (const shift of [0, 1, 2]) {
      const encoded = Buffer.concat([Buffer.alloc(shift, 'x'), bytes]).toString(encoding);
      const from = shift === 0 ? 0 : shift + 1;
      const to = Math.floor(((shift + bytes.length) * 8) / 6);
      forms.push({ name: `${encoding}+${shift}`, text: encoded.slice(from, to) });
    }
  }
  return forms.filter(({ text }, index) => forms.findIndex((other) => other.text === text) === index);
}

/** The names of the forms of the secret that occur in a text. */
export function formsIn(text: string, secret: string): string[] {
  return formsOf(secret)
    .filter(({ text: form }) => text.includes(form))
    .map(({ name }) => name);
}

/**
 * A reply's bytes as they came on the wire (latin1), and once more with the body's coding taken off: what is
 * compressed hides what it holds.
 */
export function withDecodedBody(bytes: string): string {
  const end = bytes.indexOf('\r\n\r\n');
  const body = Buffer.from(bytes.slice(end + 4), 'latin1');
  switch (/^content-encoding: *(\w+)/im.exec(bytes.slice(0, end + 2))?.[1]) {
    case 'gzip':
      return bytes + gunzipSync(body).toString('latin1');
    case 'br':
      return bytes + brotliDecompressSync(body).toString('latin1');
    default:
      return bytes;
  }
}

/** What a stranger may do with its connections. */
export const strangerKinds = [
  'small-fields',
  'large-field',
  'later-head',
  'unread',
  'unread-pipelined',
  'unread-heads',
  'waiting-login',
  'waiting-read',
  'long-hello',
  'idle',
  'idle-after-request',
] as const;

/** A read with this in its query is never answered by the upstream. */
export const stalledRead = 'stalled';

/** The issuer of the logins that wait: its keys never come. */
export const slowIssuer = 'https://login.example.com';

export type StrangerKind = (typeof strangerKinds)[number];

export function isStrangerKind(text: string): text is StrangerKind {
  return (strangerKinds as readonly string[]).includes(text);
}

/** Connections of a stranger: begun, that stand now, and that have ended. */
export interface StrangerCounts {
  opened: number;
  held: number;
  ended: number;
}

/**
 * What the stand-in's workspace holds. The specification shows no field of any record, so every field name here
 * is made up; the gateway reads none of them. The same seed gives the same bytes on every machine.
 */

const platforms = ['instagram', 'youtube', 'tiktok', 'linkedin', 'facebook', 'pinterest'];
const firstWords = [
  'Northwind',
  'Lumen',
  'Harbor',
  'Juniper',
  'Atlas',
  'Copper',
  'Meadow',
  'Orbit',
  'Quarry',
];
const lastWords = ['Coffee', 'Studio', 'Outdoors', 'Kitchen', 'Press', 'Cycling', 'Gallery', 'Garden'];
const zones = ['Europe/Berlin', 'America/New_York', 'Asia/Tokyo', 'Europe/Lisbon'];
const keyNames = ['Weekly report', 'Dashboard', 'Warehouse import', 'Spreadsheet'];

/** Fifteen accounts make about 3.3 KiB of JSON. */
export const defaultAccounts = 15;

/** The list of connected accounts. */
export function accountsData(seed: number, count: number): unknown[] {
  const random = randomFrom(seed);
  return Array.from({ length: count }, (_, index) => {
    const first = pick(firstWords, random);
    const last = pick(lastWords, random);
    return {
      id: `acc_${hex(random, 12)}`,
      platform: pick(platforms, random),
      name: `${first} ${last}`,
      handle: `@${first}${last}${index + 1}`.toLowerCase(),
      followers: whole(random, 1_000, 250_000),
      posts: whole(random, 20, 4_000),
      engagement_rate: whole(random, 50, 900) / 100,
      time_zone: pick(zones, random),
      connected_at: day(random),
    };
  });
}

/** The list of the holder's API keys, without their secret values. */
export function apiKeysData(seed: number): unknown[] {
  const random = randomFrom(seed + 1);
  return keyNames.map((name) => ({ id: `key_${hex(random, 12)}`, name, created_at: day(random) }));
}

/** What a further read returns. */
export function readData(seed: number, pattern: string): unknown[] {
  const random = randomFrom(seed + 2);
  return Array.from({ length: 5 }, () => ({
    id: hex(random, 12),
    read: pattern,
    value: whole(random, 0, 10_000),
  }));
}

/** Mulberry32: small, and the same everywhere. */
function randomFrom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function pick(from: readonly string[], random: () => number): string {
  return from[Math.floor(random() * from.length)] ?? '';
}

function whole(random: () => number, least: number, most: number): number {
  return least + Math.floor(random() * (most - least + 1));
}

function hex(random: () => number, digits: number): string {
  return Array.from({ length: digits }, () => Math.floor(random() * 16).toString(16)).join('');
}

function day(random: () => number): string {
  return new Date(Date.UTC(2024, 0, 1) + whole(random, 0, 600) * 86_400_000).toISOString();
}

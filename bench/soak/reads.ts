/** The reads that the soak asks for: 3,000 different targets of three kinds of operation. */

/** As UPSTREAM_READS. */
export const furtherReads = [
  '/analytics/reports/:id/',
  '/analytics/posts/:id/metrics/',
  '/analytics/hangs/:id/',
] as const;

/** Asked by the hostile caller alone: the upstream never answers, and the circuit of no other read hears of it. */
export function hangingTarget(number: number): string {
  return `/api/analytics/hangs/${number}/`;
}

/** What each caller of the soak may do. */
export const operations = ['list-accounts', ...furtherReads] as const;

const perKind = 1_000;

/** Each is a path with its query, as a caller sends it and as the upstream gets it. */
export const targets: readonly string[] = Array.from({ length: perKind }, (_, at) => [
  `/api/analytics/accounts/?page=${at}`,
  `/api/analytics/reports/r-${at}/${at % 3 === 0 ? `?from=2026-01-${String((at % 28) + 1).padStart(2, '0')}` : ''}`,
  `/api/analytics/posts/${at}.v1/metrics/${at % 2 === 0 ? '?metric=likes&metric=views' : ''}`,
]).flat();

/** Asked at the end: the upstream answers late, so that these are under way when the gateway is told to stop. */
export const slowMark = 'late=1';

export function slowTarget(number: number): string {
  return `/api/analytics/accounts/?${slowMark}&number=${number}`;
}

/**
 * Undici's pool by itself: the package's entry also loads fetch, WebSocket, caches and mocks, 11 MiB and 40 ms of a
 * sidecar's life for what a gateway never uses. A test keeps this file of undici the one its entry exports.
 */
declare module 'undici/lib/dispatcher/pool.js' {
  import type { Pool } from 'undici';

  const PoolClass: typeof Pool;
  export default PoolClass;
}

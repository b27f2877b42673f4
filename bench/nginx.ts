/** nginx doing the same work: who calls by a map, one JSON line per request, the key on what goes up. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface NginxOptions {
  readonly folder: string;
  readonly port: number;
  readonly upstreamOrigin: string;
  readonly key: string;
  readonly token: string;
  /** Answers from `proxy_cache`, or passes everything through. */
  readonly caches: boolean;
}

/** Writes the configuration and returns nginx's arguments. */
export function configureNginx(options: NginxOptions): string[] {
  const { folder, port, upstreamOrigin, key, token, caches } = options;
  mkdirSync(folder, { recursive: true });
  const file = join(folder, 'nginx.conf');
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${join(folder, kind)};`)
    .join('\n  ');
  writeFileSync(
    file,
    `
worker_processes 1;
${process.getuid?.() === 0 ? 'user root;' : ''}
daemon off;
pid ${join(folder, 'nginx.pid')};
error_log ${join(folder, 'error.log')} crit;
events { worker_connections 4096; }
http {
  ${temporary}
  map_hash_bucket_size 256;
  map $http_authorization $caller { default ""; "Bearer ${token}" bench; }
  log_format line escape=json '{"time":"$time_iso8601","requestId":"$request_id","caller":"$caller",'
    '"method":"$request_method","path":"$uri","status":$status,"cache":"$upstream_cache_status",'
    '"totalMs":$request_time}';
  access_log ${join(folder, 'access.log')} line buffer=32k flush=1s;
  keepalive_requests 100000000;
  ${caches ? `proxy_cache_path ${join(folder, 'cache')} keys_zone=answers:64m max_size=512m inactive=60m;` : ''}
  upstream stand_in { server ${upstreamOrigin.replace(/^http:\/\//, '')}; keepalive 64; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port} backlog=1024;
    location /api/ {
      if ($caller = "") { return 401; }
      proxy_pass http://stand_in;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "";
      proxy_set_header X-API-Key "${key}";
      proxy_set_header X-Request-ID $request_id;
      proxy_buffers 8 16k;
      ${caches ? 'proxy_cache answers; proxy_cache_valid 200 60m; proxy_cache_lock on;' : ''}
      add_header X-Request-ID $request_id;
      add_header Cache-Status $upstream_cache_status;
      add_header Cache-Control "private, no-cache";
      add_header Via "1.1 nginx";
      add_header X-Content-Type-Options nosniff;
      add_header Content-Security-Policy "default-src 'none'; frame-ancestors 'none'; sandbox";
      add_header Cross-Origin-Resource-Policy same-origin;
    }
  }
}
`,
  );
  return ['-c', file, '-p', folder];
}

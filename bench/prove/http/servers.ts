/** Other people's servers as reverse proxies, as each is commonly set: keep-alive to the next server, nothing stored. */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A listener of the proxy, and the port of this machine that it leads to. */
export interface Way {
  readonly port: number;
  readonly to: number;
}

export interface HttpServer {
  readonly name: string;
  readonly program: string;
  /** Words that make the program print its version. */
  readonly version: readonly string[];
  /** Writes its configuration into a folder. @returns the words to start it with, in the foreground */
  configure(folder: string, ways: readonly Way[]): readonly string[];
}

const write = (folder: string, name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

const nginx: HttpServer = {
  name: 'nginx',
  program: 'nginx',
  version: ['-v'],
  configure(folder, ways) {
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (kind) => `${kind}_temp_path ${join(folder, kind)};`,
    );
    const servers = ways.map(
      ({ port, to }) => `upstream u${to} { server 127.0.0.1:${to}; keepalive 8; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://u${to};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host localhost;
    }
  }`,
    );
    const path = write(
      folder,
      'nginx.conf',
      `daemon off;
master_process off;
pid ${join(folder, 'pid')};
error_log ${join(folder, 'error.log')} crit;
events {}
http { access_log off; ${temporary.join(' ')} ${servers.join('\n')} }
`,
    );
    return ['-p', folder, '-e', join(folder, 'error.log'), '-c', path];
  },
};

const haproxy = (name: string, options: string): HttpServer => ({
  name,
  program: 'haproxy',
  version: ['-v'],
  configure(folder, ways) {
    const listeners = ways.map(
      ({ port, to }) => `listen to-${to}
  bind 127.0.0.1:${port}
  server one 127.0.0.1:${to}`,
    );
    const path = write(
      folder,
      'haproxy.cfg',
      `defaults
  mode http
  http-reuse always
  ${options}
  timeout connect 5s
  timeout client 5s
  timeout server 5s
${listeners.join('\n')}
`,
    );
    return ['-db', '-f', path];
  },
});

const apache = (name: string, options: string): HttpServer => ({
  name,
  program: 'apache2',
  version: ['-v'],
  configure(folder, ways) {
    const modules = ['mpm_event', 'proxy', 'proxy_http', 'authz_core'].map(
      (module) => `LoadModule ${module}_module /usr/lib/apache2/modules/mod_${module}.so`,
    );
    const hosts = ways.map(
      ({ port, to }) => `Listen 127.0.0.1:${port}
<VirtualHost 127.0.0.1:${port}>
  ServerName localhost
  ProxyPass / http://127.0.0.1:${to}/ nocanon
  ProxyPreserveHost On
  AllowEncodedSlashes NoDecode
</VirtualHost>`,
    );
    const path = write(
      folder,
      'httpd.conf',
      `${modules.join('\n')}
ServerRoot ${folder}
DefaultRuntimeDir ${folder}
PidFile ${join(folder, 'pid')}
ErrorLog ${join(folder, 'error.log')}
LogLevel emerg
ServerName localhost
ServerLimit 1
ThreadsPerChild 25
StartServers 1
MinSpareThreads 1
MaxSpareThreads 25
MaxRequestWorkers 25
${options}
${hosts.join('\n')}
`,
    );
    return ['-X', '-f', path];
  },
});

const squid: HttpServer = {
  name: 'Squid',
  program: 'squid',
  version: ['-v'],
  configure(folder, ways) {
    // It gives up root's rights.
    chmodSync(folder, 0o777);
    const listeners = ways.map(
      ({ port, to }) => `http_port 127.0.0.1:${port} accel defaultsite=localhost no-vhost
acl on-${port} localport ${port}
cache_peer 127.0.0.1 parent ${to} 0 no-query no-digest originserver name=to-${to}
cache_peer_access to-${to} allow on-${port}
cache_peer_access to-${to} deny all`,
    );
    const path = write(
      folder,
      'squid.conf',
      `${listeners.join('\n')}
http_access allow all
cache deny all
cache_mem 0 MB
access_log none
cache_log ${join(folder, 'cache.log')}
pid_filename ${join(folder, 'pid')}
coredump_dir ${folder}
shutdown_lifetime 0 seconds
pinger_enable off
max_filedescriptors 1024
never_direct allow all
`,
    );
    return ['-N', '-f', path];
  },
};

const varnish: HttpServer = {
  name: 'Varnish',
  program: 'varnishd',
  version: ['-V'],
  configure(folder, ways) {
    const backends = ways.map(({ to }) => `backend to_${to} { .host = "127.0.0.1"; .port = "${to}"; }`);
    const choices = ways.map(
      ({ port, to }) => `if (std.port(local.ip) == ${port}) { set req.backend_hint = to_${to}; }`,
    );
    const path = write(
      folder,
      'default.vcl',
      `vcl 4.1;
import std;
${backends.join('\n')}
sub vcl_recv { ${choices.join('\n')} }
sub vcl_backend_response { set beresp.uncacheable = true; }
`,
    );
    const listeners = ways.flatMap(({ port }) => ['-a', `127.0.0.1:${port}`]);
    const sizes = ['-s', 'malloc,16m', '-p', 'thread_pool_min=5', '-p', 'thread_pools=1'];
    return ['-F', '-j', 'none', '-n', join(folder, 'work'), ...listeners, '-f', path, ...sizes];
  },
};

const trafficServer: HttpServer = {
  name: 'Apache Traffic Server',
  program: 'traffic_server',
  version: ['--version'],
  configure(folder, ways) {
    const [etc, run, log, cache] = ['etc', 'run', 'log', 'cache'].map((name) => {
      mkdirSync(join(folder, name));
      chmodSync(join(folder, name), 0o777);
      return join(folder, name);
    });
    // It gives up root's rights.
    chmodSync(folder, 0o777);
    const map = ways.map(
      ({ port, to }) => `regex_map_with_recv_port http://.*:${port}/ http://127.0.0.1:${to}/`,
    );
    write(String(etc), 'remap.config', `${map.join('\n')}\n`);
    write(String(etc), 'storage.config', `${cache} 16M\n`);
    const everyMethod = 'ip_addrs: 127.0.0.0/8, action: allow, methods: ALL';
    write(
      String(etc),
      'ip_allow.yaml',
      `ip_allow:\n  - {apply: in, ${everyMethod}}\n  - {apply: out, ${everyMethod}}\n`,
    );
    const records = [
      `proxy.config.http.server_ports STRING ${ways.map(({ port }) => `${port}:ip-in=127.0.0.1`).join(' ')}`,
      `proxy.config.local_state_dir STRING ${run}`,
      `proxy.config.log.logfile_dir STRING ${log}`,
      'proxy.config.http.cache.http INT 0',
      'proxy.config.reverse_proxy.enabled INT 1',
      'proxy.config.url_remap.remap_required INT 1',
      'proxy.config.url_remap.pristine_host_hdr INT 0',
      `proxy.config.admin.user_id STRING ${process.getuid?.() === 0 ? 'nobody' : '#-1'}`,
      'proxy.config.exec_thread.autoconfig INT 0',
      'proxy.config.exec_thread.limit INT 2',
      'proxy.config.cache.ram_cache.size INT 1048576',
    ];
    write(String(etc), 'records.config', records.map((line) => `CONFIG ${line}\n`).join(''));
    const root = ['prefix', 'exec_prefix'].map((name) => `${name}: /usr`);
    root.push(`sysconfdir: ${etc}`, `runtimedir: ${run}`, `logdir: ${log}`, `cachedir: ${cache}`);
    root.push(`localstatedir: ${folder}`, 'bindir: /usr/bin', 'libexecdir: /usr/lib/trafficserver/modules');
    return [`--run-root=${write(folder, 'runroot.yaml', `${root.join('\n')}\n`)}`];
  },
};

const lighttpd: HttpServer = {
  name: 'lighttpd',
  program: 'lighttpd',
  version: ['-v'],
  configure(folder, ways) {
    const sockets = ways.map(
      ({ port, to }) => `$SERVER["socket"] == "127.0.0.1:${port}" {
  proxy.server = ( "" => (( "host" => "127.0.0.1", "port" => ${to} )) )
  proxy.header = ( "force-http10" => "disable", "upgrade" => "enable" )
}`,
    );
    const path = write(
      folder,
      'lighttpd.conf',
      `server.modules = ( "mod_proxy" )
server.document-root = "${folder}"
server.bind = "127.0.0.1"
server.port = ${ways[0]?.port}
${sockets.join('\n')}
`,
    );
    return ['-D', '-f', path];
  },
};

const caddy: HttpServer = {
  name: 'Caddy',
  program: 'caddy',
  version: ['version'],
  configure(folder, ways) {
    const sites = ways.map(
      ({ port, to }) => `http://:${port} {
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:${to} {
    header_up Host localhost
  }
}`,
    );
    const path = write(folder, 'Caddyfile', `{\n  admin off\n}\n${sites.join('\n')}\n`);
    return ['run', '--config', path, '--adapter', 'caddyfile'];
  },
};

const h2o: HttpServer = {
  name: 'H2O',
  program: 'h2o',
  version: ['-v'],
  configure(folder, ways) {
    const hosts = ways.map(
      ({ port, to }) => `  "localhost:${port}":
    listen:
      host: 127.0.0.1
      port: ${port}
    paths:
      "/":
        proxy.reverse.url: "http://127.0.0.1:${to}/"
        proxy.timeout.keepalive: 2000`,
    );
    const path = write(
      folder,
      'h2o.conf',
      `user: root
num-threads: 1
pid-file: ${join(folder, 'pid')}
error-log: ${join(folder, 'error.log')}
hosts:
${hosts.join('\n')}
`,
    );
    return ['-m', 'worker', '-c', path];
  },
};

export const httpServers: readonly HttpServer[] = [
  nginx,
  haproxy('HAProxy', ''),
  haproxy(
    'HAProxy, told to accept invalid requests',
    'option accept-invalid-http-request\n  option accept-invalid-http-response',
  ),
  apache('Apache httpd', ''),
  apache('Apache httpd, told to be lenient', 'HttpProtocolOptions Unsafe LenientMethods Allow0.9'),
  squid,
  varnish,
  trafficServer,
  lighttpd,
  caddy,
  h2o,
];

/** The first number with dots that the program prints. */
export function versionOf({ program, version }: HttpServer): string {
  // nginx and HAProxy print it to standard error.
  const said = execFileSync('sh', ['-c', '"$@" 2>&1', 'sh', program, ...version], { encoding: 'utf8' });
  return /\d+(?:\.\d+)+/.exec(said)?.[0] ?? 'unknown';
}

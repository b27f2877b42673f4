import { describe, expect, it } from 'vitest';
import { settingsWithoutEffect } from '../../src/commands/environment.ts';
import { ConfigError, changedSettings, readConfig } from '../../src/config/config.ts';
import { unknownSettings } from '../../src/config/misspellings.ts';
import { settings } from '../../src/config/settings.ts';
import { noProxy } from '../../src/config/values.ts';

const enough = { UPSTREAM_BASE_URL: 'https://analytics.example.com/api' };

function problemsOf(environment: Record<string, string>): readonly string[] {
  try {
    readConfig(environment);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

describe('settings that are fine', () => {
  it('settings need only the base address', () => {
    const config = readConfig(enough);
    expect(config).toMatchObject({
      HOST: '127.0.0.1',
      PORT: 8080,
      CACHE_TTL: 15_000,
      UPSTREAM_MAX_BODY: 8 * 2 ** 20,
      UPSTREAM_READS: [],
    });
    expect(config.UPSTREAM_BASE_URL.href).toBe('https://analytics.example.com/api');
  });

  it('settings take an empty value as not set', () => {
    expect(readConfig({ ...enough, PORT: '', CORS_ORIGINS: ' ' })).toMatchObject({
      PORT: 8080,
      CORS_ORIGINS: [],
    });
  });

  it.each([
    ['REQUEST_TIMEOUT', '250ms', 250],
    ['REQUEST_TIMEOUT', '1.5s', 1_500],
    ['GATE_MAX_CLOSED', '0s', 0],
    ['CACHE_MAX_BYTES', '64KiB', 65_536],
    ['CACHE_MAX_BYTES', '1GiB', 2 ** 30],
    ['UPSTREAM_ALLOW_HTTP', 'true', true],
    ['UPSTREAM_ALLOW_HTTP', 'false', false],
    ['ALLOWED_HOSTS', 'Gateway.Internal:8080, ::1', ['gateway.internal', '[::1]']],
    ['ADMIN_PORT', 'off', 'off'],
    ['PORT', '0', 0],
    ['HOST', 'unix:/run/gateway.sock', 'unix:/run/gateway.sock'],
    ['HOST', '::1', '::1'],
    [
      'CORS_ORIGINS',
      'https://a.example, http://localhost:5173',
      ['https://a.example', 'http://localhost:5173'],
    ],
    [
      'UPSTREAM_READS',
      '/analytics/posts/,/analytics/reports/:id/',
      ['/analytics/posts/', '/analytics/reports/:id/'],
    ],
    ['UPSTREAM_MEDIA_TYPES', 'Application/JSON', ['application/json']],
    ['FORWARD_REQUEST_HEADERS', 'Accept-Language', ['accept-language']],
    ['TRUSTED_PROXIES', '10.0.0.0/8, ::1 ,unix', ['10.0.0.0/8', '::1', 'unix']],
    [
      'TRUSTED_PROXIES',
      '10.0.0.128/25,FD00:0::/9,::ffff:10.0.0.0/104,10.0.0.1/32',
      ['10.0.0.128/25', 'FD00:0::/9', '::ffff:10.0.0.0/104', '10.0.0.1/32'],
    ],
    ['UPSTREAM_LIMIT_HEADERS', 'X-Wait, acme-reset', ['x-wait', 'acme-reset']],
    ['UPSTREAM_LIMIT_HEADERS', '', []],
    [
      'UPSTREAM_LIMIT',
      '10000/1d, 60/1m',
      [
        { most: 60, windowMs: 60_000, window: '1m' },
        { most: 10_000, windowMs: 86_400_000, window: '1d' },
      ],
    ],
    ['UPSTREAM_LIMIT', '5/10s', [{ most: 5, windowMs: 10_000, window: '10s' }]],
    ['UPSTREAM_LIMIT', '900/31d', [{ most: 900, windowMs: 31 * 86_400_000, window: '31d' }]],
    ['UPSTREAM_LIMIT_RESERVE', '12.5%', 0.125],
    ['UPSTREAM_LIMIT_RESERVE', '', 0],
    ['SHARED_STORE', 'unix:/run/store.sock', { kind: 'unix', path: '/run/store.sock' }],
    ['SHARED_STORE_PASSWORD_FROM', 'env:STORE_PASSWORD', 'env:STORE_PASSWORD'],
  ])('the setting %s=%s is read', (name, value, expected) => {
    expect(readConfig({ ...enough, [name]: value })).toHaveProperty(name, expected);
  });

  it.each(['http://127.0.0.1:9/api', 'http://localhost/api/', 'http://[::1]:9/api', 'https://a.example'])(
    'the setting UPSTREAM_BASE_URL takes %s',
    (value) => {
      expect(readConfig({ UPSTREAM_BASE_URL: value }).UPSTREAM_BASE_URL.pathname).toMatch(/^\/(?:api)?$/);
    },
  );
});

describe('settings that are wrong', () => {
  it('wrong settings are all reported at once, by name', () => {
    expect(problemsOf({ PORT: 'x', CACHE_TTL: '15', HOST: '0.0.0.0' })).toEqual([
      'UPSTREAM_BASE_URL is required',
      expect.stringMatching(/^PORT /),
      expect.stringMatching(/^CACHE_TTL /),
      expect.stringMatching(/^HOST /),
    ]);
  });

  it.each([
    ['UPSTREAM_BASE_URL', 'ftp://hunter2.example'],
    ['UPSTREAM_BASE_URL', 'https://hunter2:pw@a.example/api'],
    ['UPSTREAM_BASE_URL', 'https://hunter2@a.example/api'],
    ['UPSTREAM_BASE_URL', 'https://:hunter2@a.example/api'],
    ['UPSTREAM_BASE_URL', 'https://a.example/api?hunter2'],
    ['UPSTREAM_BASE_URL', 'https://a.example/api#hunter2'],
    ['UPSTREAM_BASE_URL', 'http://hunter2.example/api'],
    ['UPSTREAM_BASE_URL', 'https://a.example/hunter2/../api'],
    ['UPSTREAM_BASE_URL', 'https://a.example//hunter2'],
    ['UPSTREAM_BASE_URL', 'https://hunter2\u3002example/api'],
    ['UPSTREAM_BASE_URL', 'hunter2'],
    ['REQUEST_TIMEOUT', 'hunter2'],
    ['REQUEST_TIMEOUT', '30d'],
    ['REQUEST_TIMEOUT', 'hunter2s'],
    ['REQUEST_TIMEOUT', '30shunter2'],
    ['REQUEST_TIMEOUT', '9ms'],
    ['REQUEST_TIMEOUT', '600h'],
    ['CACHE_MAX_BYTES', 'hunter2MiB'],
    ['CACHE_MAX_BYTES', '64MiBhunter2'],
    ['CACHE_MAX_BYTES', '2000GiB'],
    ['UPSTREAM_MAX_BODY', '1023B'],
    ['PORT', '8e3'],
    ['PORT', 'hunter2'],
    ['PORT', '80hunter'],
    ['PORT', '65536'],
    ['UPSTREAM_CONNECTIONS', '0'],
    ['UPSTREAM_ALLOW_HTTP', 'hunter2'],
    ['CACHE_MAX_BYTES', '64MB hunter2'],
    ['CORS_ORIGINS', 'https://hunter2.example/'],
    ['CORS_ORIGINS', '*'],
    ['CORS_ORIGINS', 'null'],
    ['CORS_ORIGINS', 'https://a.example,,https://hunter2.example'],
    ['UPSTREAM_READS', '/hunter2/../x/'],
    ['UPSTREAM_READS', 'https://hunter2.example/'],
    ['UPSTREAM_READS', '/hunter2/*'],
    ['TRUSTED_PROXIES', 'balancer.internal'],
    ['TRUSTED_PROXIES', '10.0.0.0/33'],
    ['TRUSTED_PROXIES', '10.0.0/8'],
    ['TRUSTED_PROXIES', 'fd00::/129'],
    ['TRUSTED_PROXIES', '0.0.0.0/0'],
    ['TRUSTED_PROXIES', '10.0.0.0/8/8'],
    ['TRUSTED_PROXIES', '10.0.0.1/8'],
    ['TRUSTED_PROXIES', '10.0.0.1%eth0'],
    ['TRUSTED_PROXIES', 'fd00::1/8'],
    ['TRUSTED_PROXIES', '10.0.0.129/25'],
    ['FORWARD_REQUEST_HEADERS', 'X-API-Key'],
    ['FORWARD_REQUEST_HEADERS', 'Connection'],
    ['FORWARD_RESPONSE_HEADERS', 'Set-Cookie'],
    ['FORWARD_RESPONSE_HEADERS', 'Location'],
    ['PUBLIC_BASE_URL', 'gateway.internal'],
    ['PUBLIC_BASE_URL', 'https://hunter2@gateway.internal'],
    ['PUBLIC_BASE_URL', 'https://gateway.internal/api'],
    ['PUBLIC_BASE_URL', 'https://gateway.internal/?a'],
    ['FORWARD_REQUEST_HEADERS', '@hunter2'],
    ['FORWARD_REQUEST_HEADERS_UNKEYED', 'Cookie'],
    ['FORWARD_REQUEST_HEADERS_UNKEYED', 'X-Hunter2'],
    ['FORWARD_REQUEST_HEADERS', 'hunter2:'],
    ['UPSTREAM_LIMIT_HEADERS', 'x-hunter2: 7'],
    ['UPSTREAM_LIMIT_HEADERS', 'x-wait,,hunter2'],
    ['UPSTREAM_LIMIT', '60'],
    ['UPSTREAM_LIMIT', '0/1m'],
    ['UPSTREAM_LIMIT', '60/1h,5/60m'],
    ['UPSTREAM_LIMIT', '60/0s'],
    ['UPSTREAM_LIMIT', '60/32d'],
    ['UPSTREAM_LIMIT', '60/1.5m'],
    ['UPSTREAM_LIMIT_RESERVE', '100%'],
    ['UPSTREAM_LIMIT_RESERVE', '10'],
    ['FORWARD_REQUEST_HEADERS', 'X_Forwarded_Team'],
    ['UPSTREAM_MEDIA_TYPES', 'hunter2'],
    ['UPSTREAM_MEDIA_TYPES', '(hunter2/json'],
    ['UPSTREAM_MEDIA_TYPES', 'text/csv;hunter2'],
    ['ALLOWED_HOSTS', 'hunter2/'],
    ['ADMIN_TOKEN_FROM', 'hunter2'],
    ['ADMIN_TOKEN_FROM', 'exec:env:hunter2'],
    ['ADMIN_TOKEN_FROM', 'env:hunter2-'],
    ['LOG_LEVEL', 'hunter2'],
    ['SHARED_STORE', 'redis://gate:hunter2@store'],
    ['SHARED_STORE', 'unix:hunter2'],
    ['SHARED_STORE', 'hunter2:6379'],
    ['SHARED_STORE_PASSWORD_FROM', 'hunter2'],
    ['SHARED_STORE_PASSWORD_FROM', 'exec:hunter2'],
    ['SHARED_STORE_PREFIX', 'hunter2:'],
    ['SHARED_STORE_PREFIX', ':hunter2'],
    ['HOST', '0.0.0.0'],
    ['ADMIN_HOST', '127.0.0.1:9091'],
    ['HOST', 'unix:hunter2'],
    ['HOST', '@hunter2'],
    ['HOST', 'hunter2/'],
  ])('the wrong setting %s=%s is refused without repeating it', (name, value) => {
    const problems = problemsOf({ ...enough, [name]: value });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(new RegExp(`^${name} `));
    expect(problems[0]).not.toContain('hunter2');
  });

  it('a wrong setting in quotation marks, which the --env-file of Docker keeps, is told that they count', () => {
    expect(problemsOf({ ...enough, CACHE_TTL: '"15s"' })).toEqual([
      'CACHE_TTL expects a duration like 250ms, 15s or 5m; its quotation marks count as well',
    ]);
  });

  const callers = { CALLERS_FILE: '/callers.json' };
  const shared = /^PORT and ADMIN_PORT must not be the same port/;

  it.each<[string, Record<string, string>, RegExp | undefined]>([
    ['a certificate without its key', { TLS_CERT_FILE: '/cert.pem' }, /^TLS_CERT_FILE and TLS_KEY_FILE /],
    ['a certificate and its key', { TLS_CERT_FILE: '/cert.pem', TLS_KEY_FILE: '/key.pem' }, undefined],
    [
      'a told limit without a gate',
      { UPSTREAM_LIMIT: '60/1m', GATE_MAX_CLOSED: '0s' },
      /^UPSTREAM_LIMIT needs the gate/,
    ],
    [
      'a workspace whose limit is another setting',
      { WORKSPACES: 'headers', UPSTREAM_API_KEY_FROM_HEADERS: 'file:/k' },
      /^WORKSPACES must not name headers/,
    ],
    ['a cap below the first backoff', { RETRY_BASE: '2s', RETRY_CAP: '1s' }, /^RETRY_CAP must not be below/],
    ['a cap that is the first backoff', { RETRY_BASE: '2s', RETRY_CAP: '2s' }, undefined],
    ['a delay beyond the grace', { SHUTDOWN_DELAY: '31s' }, /^SHUTDOWN_GRACE must not be below/],
    ['a delay that is all of the grace', { SHUTDOWN_DELAY: '30s' }, undefined],
    [
      'a field that no key holds, of those that go up',
      { FORWARD_REQUEST_HEADERS: 'X-A, X-B', FORWARD_REQUEST_HEADERS_UNKEYED: 'x-b' },
      undefined,
    ],
    [
      'a field that no key holds, and that does not go up',
      { FORWARD_REQUEST_HEADERS: 'X-A', FORWARD_REQUEST_HEADERS_UNKEYED: 'X-A, X-B' },
      /^FORWARD_REQUEST_HEADERS_UNKEYED must name only fields that FORWARD_REQUEST_HEADERS names/,
    ],
    ['both listeners at one port', { PORT: '9091' }, shared],
    ['both listeners at one port that the system chooses', { PORT: '0', ADMIN_PORT: '0' }, undefined],
    [
      'one socket without an admin listener',
      { HOST: 'unix:/a', ADMIN_HOST: 'unix:/a', ADMIN_PORT: 'off' },
      undefined,
    ],
    ['one port of two addresses', { PORT: '9091', ADMIN_HOST: '127.0.0.2' }, undefined],
    ['one port of all addresses and of one', { ...callers, PORT: '9091', HOST: '0.0.0.0' }, shared],
    ['one port of one address and of all', { PORT: '9091', ADMIN_HOST: '::' }, shared],
    [
      'both listeners at one socket',
      { HOST: 'unix:/a', ADMIN_HOST: 'unix:/a' },
      /must not be the same socket/,
    ],
    ['a socket beside one port of all addresses', { HOST: 'unix:/a', ADMIN_HOST: '::' }, undefined],
  ])('settings that are fine alone are judged together: %s', (_, own, problem) => {
    const expected = problem === undefined ? [] : [expect.stringMatching(problem)];
    expect(problemsOf({ ...enough, ...own })).toEqual(expected);
  });

  it('wrong settings are found by their misspelled names', () => {
    expect(problemsOf({ ...enough, CACHE_TTTL: '1s' })).toEqual([
      'CACHE_TTTL is not a setting; did you mean CACHE_TTL?',
    ]);
    expect(problemsOf({ ...enough, CORS_ORIGIN: '' })).toHaveLength(1);
    expect(problemsOf({ ...enough, SHARED_STOR: 'x' })).toEqual([
      'SHARED_STOR is not a setting; did you mean SHARED_STORE?',
    ]);
  });

  it('wrong settings are not seen in names of others, nor in a name that an env: store refers to', () => {
    expect(
      problemsOf({
        ...enough,
        PATHS: 'x',
        UPSTREAM_API_KEZ: 'x',
        UPSTREAM_API_KEY_FROM: 'env:UPSTREAM_API_KEZ',
        ADMIN_PORTS: 'x',
        ADMIN_TOKEN_FROM: 'env:ADMIN_PORTS',
        CACHE_DIRECTORY: '/var/cache',
        SHARED_STORD: 'x',
        SHARED_STORE_PASSWORD_FROM: 'env:SHARED_STORD',
      }),
    ).toEqual([]);
  });
});

describe('the table of settings', () => {
  it('has a meaning for each, and defaults that its own readers accept', () => {
    for (const [name, setting] of Object.entries(settings)) {
      expect(setting.meaning, name).not.toBe('');
      if (setting.default !== undefined)
        expect(() => setting.read(setting.default as string), name).not.toThrow();
    }
  });
});

describe('a name that begins with UPSTREAM_ and is no setting', () => {
  it('is told of however far it is from one, but for names that another setting refers to', () => {
    const environment = {
      ...enough,
      UPSTREAM_URL: 'x',
      UPSTREAM_KEY: 'x',
      UPSTREAM_ELSEWHERE: 'x',
      UPSTREAM_SECRET: 'x',
      UPSTREAM_API_KEY_FROM: 'env:UPSTREAM_SECRET',
      CACHE_DIRECTORY: 'x',
    };
    expect(problemsOf(environment)).toEqual([]);
    expect(unknownSettings(environment)).toEqual([
      'UPSTREAM_URL is not a setting; did you mean UPSTREAM_BASE_URL?',
      'UPSTREAM_KEY is not a setting; did you mean UPSTREAM_API_KEY?',
      'UPSTREAM_ELSEWHERE is not a setting',
    ]);
  });
});

describe('settings that others put out of use', () => {
  it.each([
    [
      'a key that is given twice',
      { UPSTREAM_API_KEY: 'hunter2', UPSTREAM_API_KEY_FROM: 'file:/run/secrets/key' },
      [
        'UPSTREAM_API_KEY is ignored, because UPSTREAM_API_KEY_FROM names another place: leave one of them out',
      ],
    ],
    [
      'a key that its setting names',
      { UPSTREAM_API_KEY: 'hunter2', UPSTREAM_API_KEY_FROM: 'env:UPSTREAM_API_KEY' },
      [],
    ],
    [
      'a key that is the previous one',
      {
        UPSTREAM_API_KEY: 'hunter2',
        UPSTREAM_API_KEY_FROM: 'file:/run/secrets/key',
        UPSTREAM_API_KEY_PREVIOUS_FROM: 'env:UPSTREAM_API_KEY',
      },
      [],
    ],
    [
      'a key that is a workspace’s',
      {
        WORKSPACES: 'emea',
        UPSTREAM_API_KEY: 'hunter2',
        UPSTREAM_API_KEY_FROM: 'file:/run/secrets/key',
        UPSTREAM_API_KEY_FROM_EMEA: 'env:UPSTREAM_API_KEY',
      },
      [],
    ],
    [
      'a password of no store',
      { SHARED_STORE_PASSWORD_FROM: 'env:HUNTER2' },
      ['SHARED_STORE_PASSWORD_FROM is ignored, because SHARED_STORE is not set'],
    ],
    [
      'a read that is specified',
      { UPSTREAM_READS: '/analytics/accounts,/analytics/posts/' },
      ['UPSTREAM_READS lists what is allowed as list-accounts already; that is its only name'],
    ],
    [
      'a read that is listed twice',
      { UPSTREAM_READS: '/analytics/posts/, /analytics/posts' },
      ['UPSTREAM_READS lists a read twice'],
    ],
    [
      'another name',
      { UPSTREAM_URL: 'x' },
      ['UPSTREAM_URL is not a setting; did you mean UPSTREAM_BASE_URL?'],
    ],
  ] as [string, Record<string, string>, string[]][])(
    '%s is named where it has no effect',
    (_name, more, expected) => {
      const environment = { ...enough, ...more };
      expect(problemsOf(environment)).toEqual([]);
      expect(settingsWithoutEffect(environment)).toEqual(expected);
      expect(settingsWithoutEffect(environment).join()).not.toMatch(/hunter2/i);
    },
  );

  it.each([
    ['https://a.example/api', '/api/analytics/accounts/', 'UPSTREAM_BASE_URL'],
    ['https://a.example/v2/api/', '/analytics/posts/,/api/analytics/x/', 'UPSTREAM_BASE_URL'],
  ])('the base address %s with the read %s would double /api, which is a problem', (base, reads, name) => {
    expect(problemsOf({ UPSTREAM_BASE_URL: base, UPSTREAM_READS: reads })).toEqual([
      `UPSTREAM_READS has a read that begins with /api/, and ${name} ends with /api: it would be asked for /api/api/…. Write reads as they stand behind /api, like /analytics/posts/`,
    ]);
  });

  it('the base address of a workspace doubles /api as well', () => {
    const environment = {
      UPSTREAM_BASE_URL: 'https://a.example',
      UPSTREAM_READS: '/api/posts/',
      WORKSPACES: 'emea',
      UPSTREAM_API_KEY_FROM_EMEA: 'file:/run/secrets/emea',
      UPSTREAM_BASE_URL_EMEA: 'https://emea.example/api',
    };
    expect(problemsOf(environment)).toEqual([
      expect.stringContaining('and UPSTREAM_BASE_URL_EMEA ends with /api'),
    ]);
  });

  it.each([
    ['https://a.example', '/api/analytics/posts/'],
    ['https://a.example/api', '/apis/'],
    ['https://a.example/rapi', '/api/posts/'],
  ])('the base address %s with the read %s is fine', (base, reads) => {
    expect(problemsOf({ UPSTREAM_BASE_URL: base, UPSTREAM_READS: reads })).toEqual([]);
  });
});

describe('the settings of several workspaces', () => {
  const keyFrom = (name: string) => `file:/run/secrets/${name}`;
  const two = {
    ...enough,
    WORKSPACES: 'emea, asia-pacific',
    UPSTREAM_API_KEY_FROM_EMEA: keyFrom('emea'),
    UPSTREAM_API_KEY_FROM_ASIA_PACIFIC: keyFrom('apac'),
  };

  it('without WORKSPACES there is one unnamed workspace with the settings that have no name in them', () => {
    expect(readConfig({ ...enough, UPSTREAM_API_KEY_PREVIOUS_FROM: 'env:OLD' }).workspaces).toEqual([
      {
        name: '',
        baseUrl: new URL(enough.UPSTREAM_BASE_URL),
        keyFrom: 'env:UPSTREAM_API_KEY',
        previousKeyFrom: 'env:OLD',
        limits: [],
      },
    ]);
  });

  it('each listed workspace has its own key, previous key, base address and limit, which are UPSTREAM_BASE_URL and UPSTREAM_LIMIT where it has none', () => {
    const { workspaces } = readConfig({
      ...two,
      UPSTREAM_API_KEY_PREVIOUS_FROM_EMEA: 'env:OLD',
      UPSTREAM_BASE_URL_ASIA_PACIFIC: 'https://apac.example.com/api',
      UPSTREAM_LIMIT: '60/1m',
      UPSTREAM_LIMIT_ASIA_PACIFIC: '5/1s',
    });
    expect(workspaces).toEqual([
      {
        name: 'emea',
        baseUrl: new URL(enough.UPSTREAM_BASE_URL),
        keyFrom: keyFrom('emea'),
        previousKeyFrom: 'env:OLD',
        limits: [{ most: 60, windowMs: 60_000, window: '1m' }],
      },
      {
        name: 'asia-pacific',
        baseUrl: new URL('https://apac.example.com/api'),
        keyFrom: keyFrom('apac'),
        previousKeyFrom: undefined,
        limits: [{ most: 5, windowMs: 1_000, window: '1s' }],
      },
    ]);
  });

  it.each([
    ['UPSTREAM_API_KEY', 'x'.repeat(20)],
    ['UPSTREAM_API_KEY_FROM', 'file:/run/secrets/key'],
  ])('the unnamed workspace exists beside named ones where %s is set', (name, value) => {
    expect(readConfig({ ...two, [name]: value }).workspaces.map((one) => one.name)).toEqual([
      '',
      'emea',
      'asia-pacific',
    ]);
  });

  it('everything that is wrong with the workspaces is reported at once, by name', () => {
    expect(
      problemsOf({
        ...enough,
        WORKSPACES: 'emea,apac,emea',
        UPSTREAM_API_KEY_PREVIOUS_FROM: 'env:OLD',
        UPSTREAM_API_KEY_FROM_EMEA: keyFrom('emea'),
        UPSTREAM_BASE_URL_APAC: 'ftp://hunter2.example',
        UPSTREAM_BASE_URL_EMEA: 'http://hunter2.example/api',
        UPSTREAM_API_KEY_FROM_APAK: keyFrom('apac'),
        UPSTREAM_BASE_URL_X: 'https://hunter2.example',
        CACHE_TTTL: '1s',
      }),
    ).toEqual([
      'WORKSPACES has emea and emea, which both give UPSTREAM_API_KEY_FROM_EMEA',
      expect.stringMatching(/^UPSTREAM_API_KEY_PREVIOUS_FROM is for the unnamed workspace/),
      'UPSTREAM_API_KEY_FROM_APAC is required: WORKSPACES lists apac',
      'UPSTREAM_BASE_URL_APAC expects an address like https://analytics.example.com/api',
      'UPSTREAM_API_KEY_FROM_APAK is for a workspace that WORKSPACES does not list (did you mean "apac"?): there are emea, apac',
      'UPSTREAM_BASE_URL_X is for a workspace that WORKSPACES does not list: there are emea, apac',
      'CACHE_TTTL is not a setting; did you mean CACHE_TTL?',
      'UPSTREAM_BASE_URL_EMEA must be https: unless it is on loopback or UPSTREAM_ALLOW_HTTP=true',
    ]);
  });

  it.each(['EMEA', '-emea', 'em_ea', 'em.ea', 'a'.repeat(33), 'emea,,apac', 'hunter2/x'])(
    'the list of workspaces %s is refused without repeating it',
    (value) => {
      const problems = problemsOf({ ...enough, WORKSPACES: value });
      expect(problems[0]).toMatch(/^WORKSPACES /);
      expect(problems.join()).not.toContain('hunter2');
    },
  );

  it('a wrong name in the list of workspaces hides no problem of the others, and makes no unnamed workspace', () => {
    const environment = { ...two, WORKSPACES: 'emea,asia-pacific,Bad', UPSTREAM_BASE_URL_EMEA: 'ftp://x' };
    expect(problemsOf(environment)).toEqual([
      expect.stringMatching(/^WORKSPACES /),
      expect.stringMatching(/^UPSTREAM_BASE_URL_EMEA expects/),
    ]);
  });

  it('an empty setting of a workspace that is not listed counts as not set', () => {
    expect(problemsOf({ ...two, UPSTREAM_API_KEY_FROM_STAGING: '' })).toEqual([]);
    expect(unknownSettings({ ...enough, UPSTREAM_API_KEY_FROM_STAGING: '' })).toEqual([]);
  });

  it('a misspelled setting of a workspace is found, and a name that its env: store refers to is none', () => {
    expect(problemsOf({ ...two, UPSTREAM_API_KEY_FORM_EMEA: 'x' })).toEqual([
      'UPSTREAM_API_KEY_FORM_EMEA is not a setting; did you mean UPSTREAM_API_KEY_FROM_EMEA?',
    ]);
    const environment = {
      ...two,
      UPSTREAM_API_KEY_FROM_EMEA: 'env:UPSTREAM_API_KEY_EMEA',
      UPSTREAM_API_KEY_EMEA: 'x'.repeat(20),
    };
    expect(problemsOf(environment)).toEqual([]);
    expect(unknownSettings(environment)).toEqual([]);
  });

  it('a setting of a workspace is told to be without effect where WORKSPACES is not set', () => {
    const environment = { ...enough, UPSTREAM_API_KEY_FROM_EMEA: keyFrom('emea') };
    expect(problemsOf(environment)).toEqual([]);
    expect(unknownSettings(environment)).toEqual([
      'UPSTREAM_API_KEY_FROM_EMEA is for a workspace that WORKSPACES does not list',
    ]);
  });

  it('the settings that workspaces have of their own are among those that differ from the default', () => {
    expect(
      changedSettings(readConfig({ ...two, UPSTREAM_BASE_URL_EMEA: 'https://emea.example.com/api' })),
    ).toEqual([
      'UPSTREAM_BASE_URL',
      'WORKSPACES',
      'UPSTREAM_API_KEY_FROM_EMEA',
      'UPSTREAM_BASE_URL_EMEA',
      'UPSTREAM_API_KEY_FROM_ASIA_PACIFIC',
    ]);
  });
});

describe('the settings of a proxy', () => {
  it.each([
    ['http://proxy.internal', { host: 'proxy.internal', port: 80, isTls: false, credentials: undefined }],
    ['proxy.internal:3128', { host: 'proxy.internal', port: 3128, isTls: false, credentials: undefined }],
    ['https://a%40b:p%3Aw@[::1]:3129/', { host: '::1', port: 3129, isTls: true, credentials: 'a@b:p:w' }],
  ])('HTTPS_PROXY=%s', (text, address) => {
    expect(readConfig({ ...enough, HTTPS_PROXY: text }).HTTPS_PROXY).toEqual(address);
    expect(readConfig({ ...enough, https_proxy: text, HTTPS_PROXY: 'http://other' }).HTTPS_PROXY).toEqual(
      address,
    );
  });

  it.each([
    'socks5://proxy:1080',
    'http://',
    'http://u:secret@proxy/path',
    'http://u:%zz@proxy',
    'ftp://secret',
    'http://pröxy',
  ])('HTTPS_PROXY=%s stops the start, unsaid', (text) => {
    const [problem = '', ...others] = problemsOf({ ...enough, HTTPS_PROXY: text });
    expect(problem).toMatch(/^HTTPS_PROXY (?:expects|must|has) /);
    expect(problem).not.toMatch(/secret|zz|socks/);
    expect(others).toEqual([]);
  });

  it.each<[list: string, named: readonly string[], others: readonly string[]]>([
    [
      'example.com',
      ['example.com', 'a.example.com', 'A.Example.COM.'],
      ['badexample.com', 'example.com.evil.test'],
    ],
    ['.example.com *.corp', ['example.com', 'a.example.com', 'x.corp'], ['xcorp']],
    ['example.com:8443', ['example.com:8443'], ['example.com']],
    [
      '10.0.0.0/8,fd00::/8',
      ['10.1.2.3', '::ffff:10.1.2.3', 'fd12::1'],
      ['11.0.0.1', 'fe80::1', '10.example.com'],
    ],
    [
      '192.0.2.7, [2001:db8::1]:8443',
      ['192.0.2.7', '2001:db8:0::1:8443'],
      ['192.0.2.70', '2.7', '2001:db8::1:443'],
    ],
    ['0.2.7', [], ['192.0.2.7', '10.2.7']],
    ['*', ['anything.test', '192.0.2.1', '::1:443'], []],
    ['*:8443', ['anything.test:8443'], ['anything.test']],
    ['', [], ['example.com']],
  ])('NO_PROXY=%s', (list, named, others) => {
    const { names, unreadable } = noProxy(list);
    const isNamed = (text: string): boolean => {
      const [, host = text, port = '443'] = /^(.*):(8443|443)$/.exec(text) ?? [];
      return names(host, Number(port));
    };
    expect(named.filter((one) => !isNamed(one))).toEqual([]);
    expect(others.filter(isNamed)).toEqual([]);
    expect(unreadable).toBe(0);
  });

  it('an http: upstream that a proxy would take stops the start', () => {
    const upstream = { UPSTREAM_BASE_URL: 'http://analytics.internal/api', UPSTREAM_ALLOW_HTTP: 'true' };
    const proxy = { HTTP_PROXY: 'http://user:secret@proxy:3128' };
    expect(problemsOf({ ...upstream, ...proxy })).toEqual([
      'HTTP_PROXY is for UPSTREAM_BASE_URL as well, which is http:, and the proxy would read its key: make that https:, or name its host in NO_PROXY',
    ]);
    // What stops the start is not called without effect beside it.
    const environment = { ...upstream, ...proxy };
    expect(settingsWithoutEffect(environment, problemsOf(environment))).toEqual([]);
    expect(problemsOf({ ...upstream, http_proxy: 'http://proxy:3128' })).toHaveLength(1);
    for (const direct of [
      { NO_PROXY: '.internal' },
      { UPSTREAM_BASE_URL: 'http://127.0.0.1/api' },
      { UPSTREAM_BASE_URL: 'http://[fd00::2]/api', NO_PROXY: 'fd00::/8' },
    ])
      expect(problemsOf({ ...upstream, ...proxy, ...direct })).toEqual([]);
  });

  it('credentials are in one place', () => {
    const both = {
      HTTPS_PROXY: 'http://ann:secret@proxy:3128',
      PROXY_AUTHORIZATION_FROM: 'file:/run/secrets/proxy',
    };
    expect(problemsOf({ ...enough, ...both })).toEqual([
      'PROXY_AUTHORIZATION_FROM and the credentials in HTTPS_PROXY contradict each other',
    ]);
    expect(problemsOf({ ...enough, PROXY_AUTHORIZATION_FROM: 'secret' })).toEqual([
      'PROXY_AUTHORIZATION_FROM expects file:/path',
    ]);
  });

  it.each<[Record<string, string>, string[]]>([
    [{ HTTPS_PROXY: 'http://proxy', HTTP_PROXY: 'http://proxy', NO_PROXY: '.internal' }, []],
    [{ HTTP_PROXY: 'http://proxy', no_proxy: '.internal' }, ['HTTP_PROXY is ignored', 'NO_PROXY is ignored']],
    // There it says that the upstream is reached directly.
    [
      { HTTP_PROXY: 'http://proxy', NO_PROXY: 'up', UPSTREAM_BASE_URL: 'http://up/api' },
      ['HTTP_PROXY is ignored'],
    ],
    [{ OTEL_PROPAGATORS: 'tracecontext' }, []],
    [{ OTEL_PROPAGATORS: 'tracecontext, baggage' }, ['OTEL_PROPAGATORS is not obeyed']],
    [{ OTEL_PROPAGATORS: 'none' }, ['OTEL_PROPAGATORS is not obeyed']],
    [
      { all_proxy: 'http://proxy', PROXY_AUTHORIZATION_FROM: 'file:/a' },
      ['ALL_PROXY is', 'PROXY_AUTHORIZATION_FROM is'],
    ],
    [
      { HTTPS_PROXY: 'http://a', PROXY_AUTHORIZATION_FROM: 'file:/a', UPSTREAM_API_KEY_FROM: 'gcp-sm:x' },
      ['PROXY_AUTHORIZATION_FROM is not used for gcp-sm:'],
    ],
    [
      {
        https_proxy: 'https://a',
        PROXY_AUTHORIZATION_FROM: 'file:/a',
        UPSTREAM_API_KEY_FROM: 'gcp-sm:x',
        OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://collector.example.com',
      },
      [
        'PROXY_AUTHORIZATION_FROM is not used for gcp-sm:',
        'HTTPS_PROXY is not used for gcp-sm:',
        'PROXY_AUTHORIZATION_FROM is not used for traces by gRPC',
        'HTTPS_PROXY is not used for traces by gRPC',
      ],
    ],
    [
      { HTTPS_PROXY: 'https://a', PROXY_AUTHORIZATION_FROM: 'file:/a', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' },
      [],
    ],
    [
      { HTTPS_PROXY: 'http://a', https_proxy: 'http://b' },
      ['HTTPS_PROXY is ignored, because https_proxy says'],
    ],
    [
      { HTTPS_PROXY: 'http://a', NO_PROXY: 'a/b,10.0.0.0/99,c' },
      ['NO_PROXY is not used where it names no host: 2 of its members'],
    ],
    [
      { HTTPS_PROXY: 'http://a', UPSTREAM_BASE_URL: 'http://127.0.0.1/api' },
      ['HTTPS_PROXY is not used for UPSTREAM_BASE'],
    ],
  ])('of %j, what has no effect is named', (environment, expected) => {
    const found = settingsWithoutEffect({ ...enough, ...environment });
    expect(found).toEqual(expected.map((start) => expect.stringContaining(start)));
  });
});

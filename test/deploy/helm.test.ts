/** The chart in deploy/helm as Helm renders it, beside what kustomize makes of deploy/kubernetes/service. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { hasLibraries, importLibrary } from '../libraries/import-library.ts';
import { anchorsOf, readDocument, root } from '../support/documents.ts';
import { hasTools, runTool } from '../support/tools.ts';

interface Variable {
  readonly name: string;
  readonly value: string;
}

interface Rendered {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
  readonly spec?: {
    readonly template: { readonly spec: { readonly containers: readonly { readonly env?: Variable[] }[] } };
  };
  readonly data?: Readonly<Record<string, string>>;
}

const address = 'settings.UPSTREAM_BASE_URL=https://analytics.example.com/api';
const options = ['podMonitor', 'serviceMonitor', 'prometheusRule', 'dashboard'];
const everything = options.flatMap((name) => ['--set', `${name}.enabled=true`]);

async function parseAll(text: string): Promise<Rendered[]> {
  const { parseAllDocuments } = (await importLibrary('yaml')) as {
    parseAllDocuments: (text: string, options: object) => { toJS(): Rendered | null }[];
  };
  // As Kubernetes does: 0440 is octal there.
  return parseAllDocuments(text, { version: '1.1' }).flatMap((document) => document.toJS() ?? []);
}

const kinds =
  'configmap-v1 deployment-apps-v1 networkpolicy-networking-v1 pod-v1 poddisruptionbudget-policy-v1 service-v1 serviceaccount-v1';

function temporary(prefix: string): string {
  const folder = mkdtempSync(join(tmpdir(), prefix));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** The schemas of these kinds with what they refer to inside, as kubeconform needs them. @returns the folder */
function gatherSchemas(from: string): string {
  const read = (name: string) => readFileSync(join(from, `${name}.json`), 'utf8');
  const all = (JSON.parse(read('_definitions')) as { $defs: Record<string, object> }).$defs;
  const folder = temporary('gateway-schemas-');
  for (const kind of kinds.split(' ')) {
    const schema = read(kind).replaceAll(/"[^"]*_definitions\.json#/g, '"#');
    // Those that it refers to alone: all of them are 1.8 MB.
    const $defs: Record<string, object | undefined> = {};
    const texts = [schema];
    for (const text of texts) {
      for (const [, name = ''] of text.matchAll(/"#\/\$defs\/([^"]+)"/g)) {
        if (name in $defs) continue;
        $defs[name] = all[name];
        texts.push(JSON.stringify(all[name]));
      }
    }
    writeFileSync(join(folder, `${kind}.json`), JSON.stringify({ ...(JSON.parse(schema) as object), $defs }));
  }
  return folder;
}

function template(...words: readonly string[]) {
  return runTool('helm', ['template', 'analytics-gateway', 'deploy/helm', '--set', address, ...words]);
}

/** In one order, variables of containers too: their order says nothing. */
function sorted(all: readonly Rendered[]): Rendered[] {
  for (const { kind, spec } of all) {
    if (kind !== 'Deployment') continue;
    for (const { env } of spec?.template.spec.containers ?? []) env?.sort(byName);
  }
  return all.toSorted((one, other) => (nameIn(one) < nameIn(other) ? -1 : 1));
}

const byName = (one: { name: string }, other: { name: string }) => (one.name < other.name ? -1 : 1);
const nameIn = ({ kind, metadata }: Rendered): string => `${kind} ${metadata.name}`;

// CI does not have it: its module is not at Go's proxy.
describe.skipIf(!hasTools(['helm', 'kube-linter'], ''))('the files for Kubernetes, by kube-linter', () => {
  it('kube-linter finds nothing wrong with the chart, the kustomization and the sidecar', () => {
    const chart = join(temporary('gateway-chart-'), 'chart.yaml');
    writeFileSync(chart, template('--set', 'podMonitor.enabled=true').stdout);
    // topologySpreadConstraints spread the replicas, which it does not know.
    const words = ['lint', '--exclude', 'no-anti-affinity', 'deploy/kubernetes', chart];
    expect(runTool('kube-linter', words)).toMatchObject({ status: 0 });
    writeFileSync(chart, readFileSync(chart, 'utf8').replaceAll('readOnlyRootFilesystem: true', ''));
    expect(runTool('kube-linter', words).stdout).toContain('no-read-only-root-fs');
  });
});

const isHere = hasLibraries && hasTools(['helm', 'kustomize', 'kubeconform'], 'REQUIRE_KUBERNETES');

describe.skipIf(!isHere)('the chart', () => {
  it('the chart renders to what the kustomization has', async () => {
    const chart = await parseAll(template('--set', 'podMonitor.enabled=true').stdout);
    const kustomization = await parseAll(runTool('kustomize', ['build', 'deploy/kubernetes/service']).stdout);
    expect(kustomization.length).toBeGreaterThan(8);
    expect(sorted(chart)).toEqual(sorted(kustomization));
  });

  it('helm lint finds nothing wrong with the chart', () => {
    const { status, stdout } = runTool('helm', ['lint', '--strict', 'deploy/helm', '--set', address]);
    expect(stdout).not.toMatch(/\[(?:WARNING|ERROR)\]/);
    expect(status).toBe(0);
  });

  it.for([
    [['--set', 'replica=3'], "'replica' not allowed"],
    [['--set', 'settings.UPSTREAM_API_KEY=k'], '/settings/UPSTREAM_API_KEY'],
    [['--set', 'settings.UPSTREAM_BASE_URL=null'], '/settings'],
    [['--set', 'image.digest=sha256:0a'], '/image/digest'],
  ] as const)('the chart refuses %j by its schema', ([words, said]) => {
    const { status, stdout, stderr } = template(...words);
    expect(stderr).toContain(said);
    expect([status, stdout]).toEqual([1, '']);
  });

  it('the options of the chart are off, and each brings what it says', async () => {
    const usual = (await parseAll(template().stdout)).map(nameIn);
    const all = await parseAll(template(...everything).stdout);
    expect(all.map(nameIn).filter((name) => !usual.includes(name))).toEqual([
      'ConfigMap analytics-gateway-dashboard',
      'Service analytics-gateway-admin',
      'PodMonitor analytics-gateway',
      'PrometheusRule analytics-gateway',
      'ServiceMonitor analytics-gateway',
    ]);
    const dashboard = all.find(({ kind }) => kind === 'ConfigMap')?.data?.['analytics-gateway.json'] ?? '';
    expect(JSON.parse(dashboard)).toEqual(
      JSON.parse(readFileSync(join(root, 'deploy/grafana/dashboard.json'), 'utf8')),
    );
  });

  it('the rules of the chart are those of the file, for the job of the release and with links to the page on alerts', async () => {
    const page = 'https://wiki.example.com/alerts';
    const words = ['template', 'reports', 'deploy/helm', '--set', address, ...everything];
    const { stdout } = runTool('helm', [...words, '--set', `prometheusRule.runbookUrl=${page}`]);
    const rule = (await parseAll(stdout)).find(({ kind }) => kind === 'PrometheusRule');
    const [file] = await parseAll(readFileSync(join(root, 'deploy/prometheus/rules.yaml'), 'utf8'));
    const text = JSON.stringify(file)
      .replaceAll('docs/alerts.md#', `${page}#`)
      .replaceAll('job=\\"analytics-gateway\\"', 'job=\\"reports\\"');
    expect(rule?.spec).toEqual(JSON.parse(text));
    const anchors = anchorsOf(readDocument('docs/alerts.md'));
    for (const [, anchor = ''] of text.matchAll(/"runbook_url":"[^"#]*#(\w+)"/g))
      expect(anchors).toContain(anchor);
  });

  it('the chart takes numbers and flags as settings, and its own way where one is given', async () => {
    const words = ['settings.CACHE_MAX_BYTES=67108864', 'settings.SHARED_STORE=rediss://store.example'];
    const { stdout } = template(...words.flatMap((word) => ['--set', word]), '--set', 'store.enabled=false');
    const all = await parseAll(stdout);
    const [container] = all.find(({ kind }) => kind === 'Deployment')?.spec?.template.spec.containers ?? [];
    expect(container?.env).toContainEqual({ name: 'CACHE_MAX_BYTES', value: '67108864' });
    expect(container?.env).toContainEqual({ name: 'SHARED_STORE', value: 'rediss://store.example' });
    expect(all.map(nameIn).filter((name) => name.includes('-store'))).toEqual([]);
  });

  it('the chart mounts no key where it comes from a store', async () => {
    const words = ['secrets.upstream=', 'settings.UPSTREAM_API_KEY_FROM=vault:secret/data/upstream#key'];
    const { stdout } = template(...words.flatMap((word) => ['--set', word]));
    const all = await parseAll(stdout);
    const [container] = all.find(({ kind }) => kind === 'Deployment')?.spec?.template.spec.containers ?? [];
    const value = 'vault:secret/data/upstream#key';
    expect(container?.env).toContainEqual({ name: 'UPSTREAM_API_KEY_FROM', value });
    expect(stdout).not.toContain('upstream-key');
  });

  it('the operator’s objects are valid by the schemas of their kinds', async () => {
    const all = await parseAll(template(...everything).stdout);
    const ofOperator = all.filter(({ apiVersion }) => apiVersion.startsWith('monitoring.coreos.com/'));
    expect(ofOperator).toHaveLength(3);
    for (const manifest of ofOperator) {
      const library = `@kubernetes-models/prometheus-operator/${manifest.apiVersion}/${manifest.kind}`;
      const model = (await importLibrary(library))[manifest.kind] as new (
        manifest: Rendered,
      ) => { validate(): void };
      expect(() => new model(manifest).validate()).not.toThrow();
      expect(() => new model({ ...manifest, spec: undefined as never }).validate()).toThrow();
    }
  });

  it('the chart and the manifests name the image of this version', () => {
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
    const chart = readFileSync(join(root, 'deploy/helm/Chart.yaml'), 'utf8');
    expect(chart.match(/^(?:appVersion|version): (.*)$/gm)).toEqual([
      `version: ${version}`,
      `appVersion: ${version}`,
    ]);
    for (const path of ['service/deployment.yaml', 'sidecar/pod.yaml'])
      expect(readFileSync(join(root, 'deploy/kubernetes', path), 'utf8')).toContain(
        `image: analytics-gateway:${version}\n`,
      );
  });

  const { KUBERNETES_SCHEMAS: schemas = '', REQUIRE_KUBERNETES } = process.env;
  it.skipIf(schemas === '' && REQUIRE_KUBERNETES !== 'true').for(['1.29.0', '1.37.0'])(
    'kubeconform finds nothing wrong with chart and manifests by the schemas of Kubernetes %s',
    (kubernetes) => {
      const place = `${gatherSchemas(`${schemas}/v${kubernetes}-local-strict`)}/{{ .ResourceKind }}{{ .KindSuffix }}.json`;
      // Kinds of the operator: test/deploy/kubernetes.test.ts has their schemas.
      const skipped = ['-skip', 'PodMonitor,ServiceMonitor,PrometheusRule'];
      const check = ['-strict', '-schema-location', place, ...skipped, '-'];
      const sidecar = readFileSync(join(root, 'deploy/kubernetes/sidecar/pod.yaml'), 'utf8');
      const service = runTool('kustomize', ['build', 'deploy/kubernetes/service']).stdout;
      const manifests = [template(...everything).stdout, service, sidecar].join('\n---\n');
      expect(runTool('kubeconform', check, manifests)).toEqual({ status: 0, stdout: '', stderr: '' });
      const wrong = manifests.replace('replicas: 2', 'replicas: two');
      expect(runTool('kubeconform', check, wrong).status).toBe(1);
    },
  );
});

/** Validates deploy/kubernetes/ by the schemas of kubernetes-models, and holds its settings against the gateway's. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { hasLibraries, importLibrary } from '../libraries/import-library.ts';

interface Container {
  readonly name: string;
  readonly env: readonly { name: string; value: string }[];
  readonly ports?: readonly { name: string; containerPort: number }[];
  readonly volumeMounts: readonly { mountPath: string }[];
}

interface PodSpec {
  readonly terminationGracePeriodSeconds: number;
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
}

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly spec: Readonly<Record<string, unknown>>;
}

interface Selecting extends Manifest {
  readonly spec: {
    readonly selector?: { readonly matchLabels: unknown };
    readonly podSelector?: { readonly matchLabels: unknown };
  };
}

type Model = new (manifest: unknown) => { validate(): void };

const folder = new URL('../../deploy/kubernetes/', import.meta.url);
const store = ['store-deployment', 'store-service', 'store-networkpolicy'];
const service = [
  'serviceaccount',
  'deployment',
  'service',
  'networkpolicy',
  'poddisruptionbudget',
  'podmonitor',
  ...store,
];

async function parse<T = Manifest>(path: string): Promise<T> {
  const { parse: parseYaml } = (await importLibrary('yaml')) as { parse: (text: string) => T };
  return parseYaml(readFileSync(fileURLToPath(new URL(path, folder)), 'utf8'));
}

/** @throws Error for what the schema of its kind does not allow */
async function validate(manifest: Manifest): Promise<void> {
  const { apiVersion, kind } = manifest;
  const isOperator = apiVersion.startsWith('monitoring.coreos.com/');
  const library = isOperator ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models';
  const models = await importLibrary(`${library}/${apiVersion}/${kind}`);
  new (models[kind] as Model)(manifest).validate();
}

function configOf({ env }: Container) {
  return readConfig(Object.fromEntries(env.map(({ name, value }) => [name, value])));
}

describe.skipIf(!hasLibraries)('the manifests for Kubernetes', () => {
  it.for([...service.map((name) => `service/${name}.yaml`), 'sidecar/pod.yaml'])(
    '%s is valid by the schema of its kind',
    async (path) => {
      await validate(await parse(path));
    },
  );

  it('a manifest with a field of the wrong type would be refused', async () => {
    const deployment = await parse('service/deployment.yaml');
    const wrong = { ...deployment, spec: { ...deployment.spec, replicas: 'two' } };
    await expect(validate(wrong)).rejects.toThrow(/replicas/);
  });

  it('the Kubernetes manifests of the service are all named by its kustomization, and no others', async () => {
    const { resources } = await parse<{ resources: string[] }>('service/kustomization.yaml');
    expect(resources).toEqual(service.map((name) => `${name}.yaml`));
  });

  it('the Kubernetes manifests of the service select the pods of its deployment', async () => {
    const labels = { 'app.kubernetes.io/name': 'analytics-gateway' };
    const { spec } = await parse<{ spec: { template: { metadata: unknown } } }>('service/deployment.yaml');
    expect(spec.template.metadata).toEqual({ labels });
    expect((await parse('service/service.yaml')).spec['selector']).toEqual(labels);
    for (const name of ['deployment', 'networkpolicy', 'poddisruptionbudget', 'podmonitor']) {
      const manifest = await parse<Selecting>(`service/${name}.yaml`);
      expect((manifest.spec.podSelector ?? manifest.spec.selector)?.matchLabels, name).toEqual(labels);
    }
  });

  it('the Kubernetes manifests of the service give the gateway settings that it takes, and more time to end than it takes', async () => {
    const { spec } = await parse<{ spec: { template: { spec: PodSpec } } }>('service/deployment.yaml');
    const [container] = spec.template.spec.containers;
    const config = configOf(container as Container);
    expect(spec.template.spec.terminationGracePeriodSeconds * 1_000).toBeGreaterThan(config.SHUTDOWN_GRACE);
    expect(config.SHUTDOWN_DELAY).toBeGreaterThan(0);
    expect(container?.ports).toEqual([
      { name: 'http', containerPort: config.PORT },
      { name: 'admin', containerPort: config.ADMIN_PORT },
    ]);
    const [key, callers] = container?.volumeMounts ?? [];
    expect(config.UPSTREAM_API_KEY_FROM).toBe(`file:${key?.mountPath}/key`);
    expect(config.CALLERS_FILE).toBe(`${callers?.mountPath}/callers.json`);
  });

  it('the Kubernetes manifests of the service let its gateways, and nothing else, reach the store that they share', async () => {
    const { spec } = await parse<{ spec: { template: { spec: PodSpec } } }>('service/deployment.yaml');
    const { SHARED_STORE } = configOf(spec.template.spec.containers[0] as Container);
    const labels = { 'app.kubernetes.io/name': 'analytics-gateway-store' };
    const service = await parse<Manifest & { metadata: { name: string } }>('service/store-service.yaml');
    expect(SHARED_STORE).toMatchObject({ kind: 'tcp', host: service.metadata.name, port: 6379 });
    expect(service.spec['selector']).toEqual(labels);
    const deployment = await parse<Selecting>('service/store-deployment.yaml');
    expect(deployment.spec.selector?.matchLabels).toEqual(labels);
    const policy = await parse<Selecting>('service/store-networkpolicy.yaml');
    expect(policy.spec.podSelector?.matchLabels).toEqual(labels);
    expect(policy.spec).toMatchObject({
      ingress: [
        { from: [{ podSelector: { matchLabels: { 'app.kubernetes.io/name': 'analytics-gateway' } } }] },
      ],
    });
  });

  it('the Kubernetes manifests of the sidecar keep it on loopback, and start it before the application', async () => {
    const { spec } = await parse<{ spec: PodSpec }>('sidecar/pod.yaml');
    const [gateway] = spec.initContainers ?? [];
    const config = configOf(gateway as Container);
    expect(gateway).toMatchObject({ restartPolicy: 'Always' });
    expect(config.HOST).toBe('127.0.0.1');
    expect(config.ADMIN_HOST).toBe('127.0.0.1');
    expect(spec.terminationGracePeriodSeconds * 1_000).toBeGreaterThan(config.SHUTDOWN_GRACE);
    expect(spec.containers[0]?.env).toEqual([
      { name: 'ANALYTICS_BASE_URL', value: `http://${config.HOST}:${config.PORT}/api` },
    ]);
  });
});

/** Clones of the project in folders of their own, and the package that npm makes of one. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, cpSync, existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { version } from '../../src/version.ts';
import { root } from './documents.ts';

/** Makes a checkout of links to this one. `bin` is a copy: beside it no `dist` is found, as in a fresh clone. */
export function linkCheckout(to: string): void {
  mkdirSync(to);
  cpSync(join(root, 'bin'), join(to, 'bin'), { recursive: true });
  for (const name of ['package.json', 'src', 'deploy', 'node_modules'])
    symlinkSync(join(root, name), join(to, name));
}

/** Copies what git gives to those who clone, with what is not committed yet; `node_modules` is that of this checkout. */
export function copyCheckout(to: string): void {
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
  });
  const files = listed
    .toString()
    .split('\0')
    .filter((file) => file !== '' && existsSync(join(root, file)));
  for (const directory of new Set(files.map(dirname))) mkdirSync(join(to, directory), { recursive: true });
  for (const file of files) copyFileSync(join(root, file), join(to, file));
  symlinkSync(join(root, 'node_modules'), join(to, 'node_modules'));
}

export interface InstalledPackage {
  /** The folder of the project that has the package in its `node_modules`. */
  readonly project: string;
  /** What npm said when it packed. */
  readonly packing: string;
}

/**
 * Packs a fresh clone by a command line and installs the package into an empty project, without any registry.
 *
 * @param folder an empty folder that holds both
 */
export function installPackage(folder: string, commandLine: string): InstalledPackage {
  const checkout = join(folder, 'checkout');
  const project = join(folder, 'project');
  copyCheckout(checkout);
  const packing = inShell(`${commandLine} 2>&1`, checkout, folder);
  mkdirSync(project);
  writeFileSync(join(project, 'package.json'), '{ "type": "module" }');
  inShell(`npm install --offline ../checkout/workspace-analytics-gateway-${version}.tgz`, project, folder);
  return { project, packing };
}

/** As in a shell of someone whose own Node may be too old for the gateway: `node_modules` is not on the path. */
function inShell(commandLine: string, cwd: string, home: string): string {
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((one) => !one.includes('node_modules'));
  return execFileSync('sh', ['-c', commandLine], {
    cwd,
    encoding: 'utf8',
    // What npm says of an old Node is no finding.
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: path.join(delimiter),
      HOME: home,
      npm_config_cache: join(home, 'npm'),
      npm_config_registry: 'http://127.0.0.1:9/',
      npm_config_update_notifier: 'false',
      npm_config_audit: 'false',
      npm_config_fund: 'false',
    },
  });
}

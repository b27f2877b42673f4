/** A clone of the project in a folder of its own, and the package that npm makes of it. */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { version } from '../../src/version.ts';
import { root } from './documents.ts';

/** Copies what git gives to those who clone, with what is not committed yet; `node_modules` is that of this checkout. */
export function copyCheckout(to: string): void {
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
  });
  for (const file of listed.toString().split('\0')) {
    if (file === '' || !existsSync(join(root, file))) continue;
    mkdirSync(join(to, dirname(file)), { recursive: true });
    cpSync(join(root, file), join(to, file));
  }
  symlinkSync(join(root, 'node_modules'), join(to, 'node_modules'));
}

/**
 * Packs a fresh clone and installs the package into an empty project, without any registry.
 *
 * @param folder an empty folder that holds both
 * @returns the project's folder
 */
export function installPackage(folder: string): string {
  const checkout = join(folder, 'checkout');
  const project = join(folder, 'project');
  copyCheckout(checkout);
  mkdirSync(project);
  npm(checkout, folder, ['pack', '--pack-destination', folder]);
  npm(project, folder, ['init', '--yes', '--init-type=module']);
  npm(project, folder, ['install', '--offline', `../workspace-analytics-gateway-${version}.tgz`]);
  return project;
}

function npm(cwd: string, folder: string, words: readonly string[]): string {
  return execFileSync('npm', words, {
    cwd,
    encoding: 'utf8',
    env: {
      PATH: process.env['PATH'],
      HOME: folder,
      npm_config_cache: join(folder, 'npm'),
      npm_config_registry: 'http://127.0.0.1:9/',
      npm_config_update_notifier: 'false',
      npm_config_audit: 'false',
      npm_config_fund: 'false',
    },
  });
}

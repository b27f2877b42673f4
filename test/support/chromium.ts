/** Finds and starts the machine's Chromium, and says so plainly where there is none. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { Browser } from 'playwright-core';

/** The build without windows is first: it has the same engine and network, and takes less than half the work. */
const names = [
  'chromium-headless-shell',
  'chrome-headless-shell',
  'chromium',
  'chromium-browser',
  'google-chrome',
  'google-chrome-stable',
  'chrome',
];
const elsewhere = [
  '/usr/bin/chromium',
  '/snap/bin/chromium',
  '/Applications/Chromium.app/Contents/MacOS/Chromium',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
];

/** Path of the browser: `CHROMIUM_PATH`, or one of the usual names; `undefined` where none can be run. */
export function findChromium(environment: Readonly<Record<string, string | undefined>>): string | undefined {
  const { CHROMIUM_PATH, PATH = '' } = environment;
  if (CHROMIUM_PATH !== undefined && CHROMIUM_PATH !== '') {
    return isExecutable(CHROMIUM_PATH) ? CHROMIUM_PATH : undefined;
  }
  const folders = PATH.split(delimiter).filter((folder) => folder !== '');
  const candidates = folders.flatMap((folder) => names.map((name) => join(folder, name)));
  return [...candidates, ...elsewhere].find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export const howToInstall =
  'No Chromium was found, so nothing was tried in a real browser. Install one (Debian: apt-get install ' +
  'chromium-headless-shell), or name it in CHROMIUM_PATH.';

/** Nothing but what the pages ask for: no updates, no suggestions, no telemetry in the traffic that is watched. */
export const launchFlags = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Pages live for seconds: code that is optimised does not run often enough to repay it.
  '--js-flags=--no-opt --no-maglev',
];

/** Starts the browser at this path. Playwright is loaded when it is wanted: files of tests that skip do without. */
export async function launchChromium(
  executablePath: string,
  moreFlags: readonly string[] = [],
): Promise<Browser> {
  const { chromium } = await import('playwright-core');
  return chromium.launch({ executablePath, args: [...launchFlags, ...moreFlags] });
}

/** What is waited for without a time is waited for as long as by `expect.poll`: vitest would give up after a second. */
import { vi } from 'vitest';

const patientMs = 60_000;
const { waitFor } = vi;

// Where several files share a process, this one runs before each of them.
if (waitFor.name !== 'waitPatiently') {
  vi.waitFor = function waitPatiently(check, options = {}) {
    const own = typeof options === 'number' ? { timeout: options } : options;
    return waitFor(check, { timeout: patientMs, ...own });
  };
}

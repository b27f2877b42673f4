/** Says who calls, before anything is looked up: a cache hit is authorised like everything else. */

import type { Recognised } from '../callers/caller.ts';
import type { Directory } from '../callers/directory.ts';
import { andThen, type Layer } from '../layer.ts';
import type { InboundRequest, Reply } from './inbound.ts';

export function authenticate(directory: Pick<Directory, 'recognise'>): Layer<InboundRequest, Reply> {
  return (next) =>
    function authenticate(request, trace) {
      return andThen(directory.recognise(request), ({ caller, by, note }: Recognised) => {
        request.caller = caller;
        trace.caller = caller.name;
        trace.recognisedBy = by;
        trace.note = note;
        return next(request, trace);
      });
    };
}

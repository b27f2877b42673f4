import { expect, it } from 'vitest';
import { Flights } from '../../src/cache/single-flight.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { promotedBytesPer } from '../support/promoted-bytes.ts';

it('a flight that has ended is kept by nothing, though others are always under way', () => {
  const flights = new Flights();
  const underWay: (() => void)[] = [];
  const bytes = promotedBytesPer(5_000, (number) => {
    const key = `read ${number}`;
    const flight = flights.open(key, 'list-accounts', new Trace(0), true);
    underWay.push(() => flights.remove(key, flight));
    if (underWay.length > 32) underWay.splice((number * 7) % 32, 1)[0]?.();
  });
  // Its key, and an empty entry of a former table of the map. With its flight and trace it would be 430.
  expect(bytes).toBeLessThan(250);
});

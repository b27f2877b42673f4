import { describe, expect, it } from 'vitest';
import { requestFields, responseFields } from '../../src/documents/components.ts';
import {
  bodyFields,
  documentedFields,
  passedDown,
  readByPages,
  sentByPages,
} from '../../src/http/header-table.ts';

const lower = (names: Iterable<string>): string[] => [...names].map((name) => name.toLowerCase());

describe('the table of header fields', () => {
  it('what comes down unchanged can be read by pages and stands in the API document', () => {
    // Fetch standard section 2.2.2, CORS-safelisted response-header names.
    const safe = ['cache-control', 'content-language', 'content-type', 'expires', 'last-modified', 'pragma'];
    for (const name of passedDown) {
      expect([...safe, ...lower(readByPages)]).toContain(name);
      // Those of the body are described with the body.
      expect([...bodyFields, ...lower(documentedFields.keys())]).toContain(name);
    }
  });

  it('the fields that it documents are those that the API document has words for', () => {
    const described = Object.values(responseFields).map(({ name }) => name);
    expect([...documentedFields.keys()].sort()).toEqual([...described].sort());
  });

  it('a page may send each request field that the API document describes', () => {
    for (const { name } of Object.values(requestFields)) expect(sentByPages).toContain(name);
  });
});

/** The body that peers without an upstream answer with; as large as the stand-in's. */
export const constantBody = Buffer.alloc(Number(process.env['BENCH_BYTES'] ?? 3_300), 'a');

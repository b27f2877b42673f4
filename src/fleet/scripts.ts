/** The programs that run in the store, in Lua: all that one does happens at one moment. */
import { defineScript, type RedisArgument } from '@redis/client';

type CommandParser = Parameters<Parameters<typeof defineScript>[0]['parseCommand']>[0];

/** The client asks for a program by its digest, and sends its text where the server does not know it (any more). */
function program(keyCount: number, text: string) {
  return defineScript({
    SCRIPT: text,
    NUMBER_OF_KEYS: keyCount,
    parseCommand(parser: CommandParser, keys: readonly string[], values: readonly RedisArgument[]) {
      parser.pushKeys([...keys]);
      parser.push(...values);
    },
    transformReply: (reply: unknown) => reply,
  });
}

/**
 * Gets what a gateway may have written. Another program may write hundreds of megabytes under our names: what is longer
 * than ours are is not sent, for it would end each gateway that reads it. What is of another kind than ours is not there,
 * and gives way to ours: left in its place it would end the sharing for good.
 */
const get = `
local function get(key, most)
  local length = redis.pcall('STRLEN', key)
  return type(length) == 'number' and length <= most and redis.call('GET', key)
end
local function purge(key, what)
  local length = redis.pcall('HSTRLEN', key, what)
  return type(length) == 'number' and length <= 64 and redis.call('HGET', key, what)
end
local function put(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and string.sub(reply.err, 1, 9) == 'WRONGTYPE' then
    redis.call('DEL', key)
    redis.call(command, key, ...)
  end
end`;
/** An answer of 1 MiB with its fields, sealed. */
const answerBytes = 2 ** 21;
/** Turns, leases and buckets, signed. */
const lineBytes = 2 ** 10;
/** What a gateway says of itself: for each workspace a signature. */
const factsBytes = 2 ** 15;
/** What is known at the gate, sealed. */
const recordBytes = 2 ** 18;

export const scripts = {
  /**
   * Looks for a read and takes its turn, if it is free. Ignores a turn without a TTL, or with one above ours: no gateway
   * wrote it.
   *
   * Keys: the answer, the turn, the outcome that is awaited, the purges.
   * Values: the turn, which begins with the id of the exchange, how long it lasts in ms, the operation, 1 where a stored
   * answer will do, 1 where a free turn is taken.
   * Reply: the answer, the ids of the last purge of all and of the operation, the outcome, the turn.
   */
  look: program(
    4,
    `${get}
local answer = get(KEYS[1], ${answerBytes})
local purges = {purge(KEYS[4], '*'), purge(KEYS[4], ARGV[3])}
local outcome = get(KEYS[3], ${answerBytes})
if outcome or (answer and ARGV[4] == '1') then return {answer, purges[1], purges[2], outcome, false} end
local holder = get(KEYS[2], ${lineBytes})
if holder then
  local left = redis.call('PTTL', KEYS[2])
  if left > 0 and left <= tonumber(ARGV[2]) then return {answer, purges[1], purges[2], false, holder} end
end
if ARGV[5] == '0' then return {answer, purges[1], purges[2], false, false} end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {answer, purges[1], purges[2], false, ARGV[1]}`,
  ),

  /** Keys: the turn. Values: the id of the exchange, how long the turn lasts from now in ms, the turn with its new time. */
  renew: program(
    1,
    `${get}
local holder = get(KEYS[1], ${lineBytes})
if not holder or string.sub(holder, 1, string.len(ARGV[1])) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
return 1`,
  ),

  /** Gives a turn back and tells all gateways. Keys: the turn. Values: the id of the exchange, the channel, the read. */
  release: program(
    1,
    `${get}
local holder = get(KEYS[1], ${lineBytes})
if holder and string.sub(holder, 1, string.len(ARGV[1])) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return redis.call('PUBLISH', ARGV[2], ARGV[1] .. ' ' .. ARGV[3])`,
  ),

  /**
   * Writes a purge down and tells all gateways.
   *
   * Keys: the purges. Values: the operation or *, the part of its id that is like no other, the channel; to write an id
   * back that has been lost, that id and what stood in its place or nothing. Reply: the id, unless that was changed since.
   */
  purge: program(
    1,
    `${get}
local id = ARGV[4]
if id then
  if (purge(KEYS[1], ARGV[1]) or '') ~= ARGV[5] then return false end
else
  local time = redis.call('TIME')
  id = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)) .. '-' .. ARGV[2]
end
put('HSET', KEYS[1], ARGV[1], id)
redis.call('PUBLISH', ARGV[3], ARGV[1] .. ' ' .. id)
return id`,
  ),

  /** Reads the ids of the last purges. Keys: the purges. Values: the names that may be purged. */
  purges: program(
    1,
    `${get}
local ids = {}
for index = 1, #ARGV do ids[index] = purge(KEYS[1], ARGV[index]) end
return ids`,
  ),

  /**
   * Says that a gateway is there, and reads which others are.
   *
   * Keys: the gateways by the time of their last heartbeat. Values: the id, its facts, how long a heartbeat counts in ms,
   * what names of facts begin with. Reply: the ids that are there, the facts of each.
   */
  heartbeat: program(
    1,
    `${get}
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
put('ZADD', KEYS[1], ms, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ms - ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[3] * 10)
redis.call('SET', ARGV[4] .. ARGV[1], ARGV[2], 'PX', ARGV[3])
local ids, facts = {}, {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, 99)) do
  if string.len(id) == string.len(ARGV[1]) then
    table.insert(ids, id)
    table.insert(facts, get(ARGV[4] .. id, ${factsBytes}))
  end
end
return {ids, facts}`,
  ),

  /**
   * Writes a caller's bucket where it still is as the gateway has seen it. No gateway wrote what is no text,
   * or a long one.
   *
   * Keys: the bucket. Values: as it was seen, or nothing; as it is to be; how long it is kept in ms.
   * Reply: the bucket as it is now.
   */
  bucket: program(
    1,
    `
local kept = redis.pcall('GET', KEYS[1])
if type(kept) == 'table' or (kept and string.len(kept) > ${lineBytes}) then
  redis.call('DEL', KEYS[1])
  kept = false
end
if (kept or '') ~= ARGV[1] then return kept end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return ARGV[2]`,
  ),

  /**
   * The lease of the gateway that leads at the gate, and what is known there. Ignores a lease without a TTL, or with one
   * above ours: no gateway wrote it. Terms are never read from a lease that is taken: another program could set
   * them back.
   *
   * Keys: the lease, the record. Values: the id of the gateway, how long a lease lasts in ms, what it wants (`take`,
   * `seize` although another has it, `release`, `look`), the sealed record or nothing, how long the record is kept in ms, the term
   * in which it leads already or nothing.
   * Reply: the id and the term of the holder, the record.
   */
  lease: program(
    2,
    `${get}
local lease = get(KEYS[1], ${lineBytes})
if lease then
  local left = redis.call('PTTL', KEYS[1])
  if left <= 0 or left > tonumber(ARGV[2]) or ARGV[3] == 'seize' then lease = false end
end
if ARGV[3] ~= 'look' and (not lease or string.sub(lease, 1, string.len(ARGV[1])) == ARGV[1]) then
  if ARGV[3] == 'release' then
    lease = false
    redis.call('DEL', KEYS[1])
  else
    local time = redis.call('TIME')
    local term = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    if ARGV[6] ~= '' then term = ARGV[6] end
    lease = ARGV[1] .. ' ' .. term
    redis.call('SET', KEYS[1], lease, 'PX', ARGV[2])
  end
  if ARGV[4] ~= '' then redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
  elseif ARGV[3] == 'release' then redis.call('DEL', KEYS[2]) end
end
return {lease, get(KEYS[2], ${recordBytes})}`,
  ),
};

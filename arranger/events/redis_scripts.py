"""The Lua scripts of the log in Redis: each is one atomic step. They need nothing newer than Redis 6.2.

Keys, in this order: log (stream), meta (hash: epoch, end, chain, start, start_chain, old, keyed), writers (hash: writer
to `seq:first:last`), cursors (hash: `term:<watch>` to the watch's current term, `<watch>` to `<term>:<cursor>`),
snapshots (hash: offset to bytes). Offsets stay below 2^53, where Lua's numbers are exact; they are formatted, because
Lua would write large ones with an exponent.

With a key, the caller computes the chain for the end of the log that it knows, because Redis must not know the key. If
the log has grown since, the script answers with the present end, and the caller tries again. `keyed` is 1 once an entry
was signed. It only keeps a process that lacks the key by mistake from writing: readers rely on the signatures alone.

A cursor counts only if its term is the watch's: releases before the fence stored cursors regardless of terms.

For lack of memory or after a disk error, Redis refuses a script only at its first write, so a script runs wholly or not
at all. Trimming begins with a write that needs no memory: it must work when memory is full.
"""

#: The turn of a writer that was too late several times in a row: until it has appended, or for so many milliseconds at
#: most, others wait. Without it, a writer far from Redis would never append beside a busy one that is near.
TURN_MS = 3000

#: How far a time is ahead of the server's own, both in milliseconds, if they differ by more than the bound. An empty
#: bound accepts any time.
_OFF = """
local function off(told, bound)
  if bound == '' then return nil end
  local time = redis.call('TIME')
  local ahead = tonumber(told) - (time[1] * 1000 + math.floor(time[2] / 1000))
  if math.abs(ahead) > tonumber(bound) then return string.format('%.0f', ahead) end
end
"""

#: Whether the log doesn't have a position: `meta` is its record (epoch, end, chain, start). Before its start, it can't
#: tell; then it has it.
_LOST = """
local function lost(meta, offset, told)
  local last, known = tonumber(meta[2]), tonumber(offset)
  if known >= last then return known > last or told ~= meta[3] end
  if known <= tonumber(meta[4]) then return false end
  local id = offset .. '-0'
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  local chain = ''
  for i = 1, entry and #entry[2] or 0, 2 do
    if entry[2][i] == 'c' then chain = entry[2][i + 1] end
  end
  return chain ~= told
end
"""

#: Arguments: epoch, the writer's last known offset and its chain, writer, seq, count, payload; then the fence: watch
#: (empty: none), term (0: a claim) and cursor (empty: unchanged); then the batch's time and its bound; then whether the
#: caller signs (1), only has a key (0) or has none (empty), the end that its chain follows, with its chain, and the
#: new chain (empty: unsigned); then how often the caller was too late, and the length of a turn in milliseconds.
#: Returns `{word, …}`: appended first last chain cursor chain-before | duplicate first last cursor | later seq |
#: superseded term | clock ahead | epoch present | tail end | keyed | moved end chain | turn (of another writer). The
#: cursor is empty except for a current claim.
APPEND = (
    _OFF
    + _LOST
    + """
local meta = redis.call('HMGET', KEYS[2], 'epoch', 'end', 'chain', 'start', 'keyed', 'turn')
if not meta[1] or meta[1] ~= ARGV[1] then return {'epoch', meta[1] or 'none'} end
if meta[5] == '1' and ARGV[13] == '' then return {'keyed'} end
if lost(meta, ARGV[2], ARGV[3]) then return {'tail', meta[2]} end
local watch, claims = ARGV[8], ARGV[9] == '0'
local held = redis.call('HMGET', KEYS[4], 'term:' .. watch, watch)
local cursor = ''
if claims and held[1] then
  local under, value = string.match(held[2] or '', '^(%d+):(.*)$')
  if under == held[1] then cursor = value end
end
local mark = redis.call('HGET', KEYS[3], ARGV[4])
if mark then
  local seq, first, finish = string.match(mark, '^(%d+):(%d+):(%d+)$')
  if tonumber(seq) == tonumber(ARGV[5]) then
    return {'duplicate', first, finish, held[1] == first and cursor or ''}
  end
  if tonumber(seq) > tonumber(ARGV[5]) then return {'later', seq} end
end
if watch ~= '' and not claims and held[1] ~= ARGV[9] then return {'superseded', held[1] or 'none'} end
local ahead = off(ARGV[11], ARGV[12])
if ahead then return {'clock', ahead} end
local chain = ARGV[16]
if chain == '' then
  chain = redis.sha1hex(meta[3] .. ARGV[7])
else
  local moved, late = meta[2] ~= ARGV[14] or meta[3] ~= ARGV[15], tonumber(ARGV[17])
  if meta[6] or (moved and late > 1) then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local till, holder = string.match(meta[6] or '', '^(%d+):(.*)$')
    local taken = till and tonumber(till) > now and tonumber(till) <= now + tonumber(ARGV[18])
    if taken and holder ~= ARGV[4] then return {'turn'} end
    if moved and late > 1 and not taken then
      redis.call('HSET', KEYS[2], 'turn', string.format('%.0f', now + ARGV[18]) .. ':' .. ARGV[4])
    end
  end
  if moved then return {'moved', meta[2], meta[3]} end
  if meta[6] then redis.call('HDEL', KEYS[2], 'turn') end
end
local first, finish = string.format('%.0f', meta[2] + 1), string.format('%.0f', meta[2] + ARGV[6])
redis.call('XADD', KEYS[1], finish .. '-0', 'p', ARGV[7], 'c', chain, 'n', ARGV[6])
redis.call('HSET', KEYS[2], 'end', finish, 'chain', chain)
if ARGV[16] ~= '' and meta[5] ~= '1' then redis.call('HSET', KEYS[2], 'keyed', '1') end
redis.call('HSET', KEYS[3], ARGV[4], ARGV[5] .. ':' .. first .. ':' .. finish)
if claims then
  redis.call('HSET', KEYS[4], 'term:' .. watch, first, watch, first .. ':' .. cursor)
elseif ARGV[10] ~= '' then
  redis.call('HSET', KEYS[4], watch, ARGV[9] .. ':' .. ARGV[10])
end
return {'appended', first, finish, chain, cursor, meta[3]}
"""
)

#: Arguments: the lost epoch, the new epoch, the payload of its first batch; then the fence: watch (empty: none) and
#: term; then the batch's time and its bound; then whether the caller signs, as in `APPEND`, and the chain of the batch
#: (empty: unsigned). Returns `{epoch, end, chain}`, `{'superseded', term}`, `{'clock', ahead}` or `{'keyed'}`. The two
#: newest old streams are kept beside the log as `…log:old:<epoch>`. It begins with a write that an applier's user may
#: not make (deploy/redis-users), so that such a user changes nothing.
BEGIN_EPOCH = (
    _OFF
    + """
local present = redis.call('HMGET', KEYS[2], 'epoch', 'end', 'chain', 'old', 'keyed')
if present[1] and tonumber(present[1]) > tonumber(ARGV[1]) then return {present[1], present[2], present[3]} end
if present[5] == '1' and ARGV[8] == '' then return {'keyed'} end
local term = ARGV[4] ~= '' and redis.call('HGET', KEYS[4], 'term:' .. ARGV[4])
if ARGV[4] ~= '' and term ~= ARGV[5] then return {'superseded', term or 'none'} end
local ahead = off(ARGV[6], ARGV[7])
if ahead then return {'clock', ahead} end
redis.call('UNLINK', KEYS[3], KEYS[4], KEYS[5])
local chain = ARGV[9] ~= '' and ARGV[9] or redis.sha1hex(ARGV[3])
local old, kept = present[4] or '', {}
for epoch in string.gmatch(old, '%d+') do kept[#kept + 1] = epoch end
redis.call('HSET', KEYS[2], 'epoch', ARGV[2], 'end', '1', 'chain', chain, 'start', '0', 'start_chain', '')
if ARGV[9] ~= '' then redis.call('HSET', KEYS[2], 'keyed', '1') else redis.call('HDEL', KEYS[2], 'keyed') end
if redis.call('EXISTS', KEYS[1]) == 1 then
  local name = present[1] or ARGV[1]
  redis.call('RENAME', KEYS[1], KEYS[1] .. ':old:' .. name)
  kept[#kept + 1] = name
end
while #kept > 2 do redis.call('UNLINK', KEYS[1] .. ':old:' .. table.remove(kept, 1)) end
redis.call('HSET', KEYS[2], 'old', table.concat(kept, ' '))
redis.call('XADD', KEYS[1], '1-0', 'p', ARGV[3], 'c', chain, 'n', '1')
return {ARGV[2], '1', chain}
"""
)

#: Arguments: epoch, the offset before which entries are deleted, how many writers to remember. Returns `{'trimmed',
#: count}` or `{'epoch', present}`. Beyond that number, writers whose last batch is trimmed are deleted.
TRIM = """
local epoch = redis.call('HGET', KEYS[2], 'epoch')
if epoch ~= ARGV[1] then return {'epoch', epoch or 'none'} end
if tonumber(ARGV[2]) < 1 then return {'trimmed', 0} end
local bound = ARGV[2] .. '-0'
local newest = redis.call('XREVRANGE', KEYS[1], '(' .. bound, '-', 'COUNT', 1)[1]
if not newest then return {'trimmed', 0} end
local chain = ''
for i = 1, #newest[2], 2 do
  if newest[2][i] == 'c' then chain = newest[2][i + 1] end
end
local start = string.match(newest[1], '^%d+')
local count = redis.call('XTRIM', KEYS[1], 'MINID', bound)
redis.call('HSET', KEYS[2], 'start', start, 'start_chain', chain)
if redis.call('HLEN', KEYS[3]) > tonumber(ARGV[3]) then
  local writers = redis.call('HGETALL', KEYS[3])
  for i = 1, #writers, 2 do
    local last = string.match(writers[i + 1], '%d+$')
    if tonumber(last) <= tonumber(start) then redis.call('HDEL', KEYS[3], writers[i]) end
  end
end
return {'trimmed', count}
"""

#: Keys: the five of the log, and the stream and the hash of snapshots that were loaded beside them. Arguments: epoch,
#: end, chain, start, chain at the start, and 1 if entries are signed. Returns `{'loaded'}`, or `{'there'}` if any key
#: of the log exists already.
LOAD = """
for i = 1, 5 do
  if redis.call('EXISTS', KEYS[i]) == 1 then return {'there'} end
end
redis.call('RENAME', KEYS[6], KEYS[1])
if redis.call('EXISTS', KEYS[7]) == 1 then redis.call('RENAME', KEYS[7], KEYS[5]) end
redis.call('HSET', KEYS[2], 'epoch', ARGV[1], 'end', ARGV[2], 'chain', ARGV[3])
redis.call('HSET', KEYS[2], 'start', ARGV[4], 'start_chain', ARGV[5])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[2], 'keyed', ARGV[6]) end
return {'loaded'}
"""

#: Arguments: epoch, offset, chain, content, how many to keep. Returns `{'kept'}`, `{'epoch', present}` or `{'tail',
#: end}`. What isn't the offset of an entry of this log is no snapshot of ours, and must not displace one.
PUT_SNAPSHOT = (
    _LOST
    + """
local meta = redis.call('HMGET', KEYS[2], 'epoch', 'end', 'chain', 'start')
if meta[1] ~= ARGV[1] then return {'epoch', meta[1] or 'none'} end
if lost(meta, ARGV[2], ARGV[3]) then return {'tail', meta[2]} end
redis.call('HSET', KEYS[5], ARGV[2], ARGV[4])
local offsets = {}
for _, offset in ipairs(redis.call('HKEYS', KEYS[5])) do
  local number = string.match(offset, '^%d+$') and tonumber(offset)
  if number and number <= tonumber(meta[2]) then
    offsets[#offsets + 1] = offset
  else
    redis.call('HDEL', KEYS[5], offset)
  end
end
table.sort(offsets, function(a, b) return tonumber(a) > tonumber(b) end)
for i = tonumber(ARGV[5]) + 1, #offsets do redis.call('HDEL', KEYS[5], offsets[i]) end
return {'kept'}
"""
)

-- Writes a record by compare-and-set. An expired one counts as none.
-- asked: {kind, tenant, key, version, body, expires as text, expires in ms or false, expected version or false}.
-- Returns 1 if the record is now as requested.

local kind, tenant, name = asked[1], asked[2], asked[3]
local key = record_key(kind, tenant, name)
need('zset', 'kinds:' .. kind, 'expiring')
if not fits(key, 'hash') then error('WRONGTYPE ' .. wrong, 0) end
local found = call('HMGET', key, 'version', 'body', 'expires')
local ends = instant(found[3])
local live = found[1] and not (ends and ends <= now)
if live and found[1] == asked[4] and found[2] == asked[5] and found[3] == asked[6] then return { now, 1 } end
if (live and found[1] or false) ~= asked[8] then return { now, 0 } end
call('HSET', key, 'version', asked[4], 'body', asked[5], 'expires', asked[6])
call('ZADD', base .. 'kinds:' .. kind, 0, tenant .. ' ' .. name)
local member = kind .. ' ' .. tenant .. ' ' .. name
if asked[7] then
  call('ZADD', base .. 'expiring', asked[7], member)
  -- The server deletes a lock when it expires, and TTL shows for how long it is held. A late write cannot match: the
  -- version was random and is gone. Not with a clock of tests, which may stand still.
  if kind == 'lock' and ARGV[1] == '' then call('PEXPIRE', key, math.max(1, asked[7] - now)) end
else
  call('ZREM', base .. 'expiring', member)
end
return { now, 1 }

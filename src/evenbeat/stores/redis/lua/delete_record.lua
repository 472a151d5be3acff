-- Deletes a record. request: {kind, tenant, key, version}. Returns 1 if the record had that version.

local kind, tenant, name = request[1], request[2], request[3]
local key = record_key(kind, tenant, name)
need('zset', 'kinds:' .. kind, 'expiring')
if kind == 'limit' then need('hash', 'limits') end
if not fits(key, 'hash') then return { now, 0 } end
if call('HGET', key, 'version') ~= request[4] then return { now, 0 } end
call('DEL', key)
if kind == 'limit' then mark('version') end
call('ZREM', base .. 'kinds:' .. kind, tenant .. ' ' .. name)
call('ZREM', base .. 'expiring', kind .. ' ' .. tenant .. ' ' .. name)
return { now, 1 }

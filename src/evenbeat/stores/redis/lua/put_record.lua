-- Writes a record by compare-and-set. An expired one counts as none.
-- request: the fields of write_record, and the expected version or false. Returns 1 if the record is now as requested.

local key = record_key(request[1], request[2], request[3])
need('zset', 'kinds:' .. request[1], 'expiring')
if request[1] == 'limit' then need('hash', 'limits') end
if not fits(key, 'hash') then error('REFUSED ' .. wrong, 0) end
local found = call('HMGET', key, 'version', 'body', 'expires')
local live = is_live(found[1], found[3])
if live and found[1] == request[4] and found[2] == request[5] and found[3] == request[6] then return { now, 1 } end
return { now, change_record(request) and 1 or 0 }

-- Reads a record. request: {kind, tenant, key}. Returns {version, body, expires}, or false if there is none.

local found = read('HMGET', record_key(request[1], request[2], request[3]), 'version', 'body', 'expires')
return { now, is_live(found[1], found[3]) and { found[1], found[2] or '', found[3] or '' } or false }

-- Deletes runs that ended, ledger rows that were recorded and records that expired before an instant.
-- request: {before, limit}. Returns how many were deleted.

begin()
need_for_runs()
local edge, limit = '(' .. string.format('%.0f', request[1]), request[2]
local gone = 0
for _, id in ipairs(call('ZRANGEBYSCORE', base .. 'over', '-inf', edge, 'LIMIT', 0, limit)) do
  local key = base .. 'runs:' .. id
  local found = read('HMGET', key, 'tenant', 'schedule', 'state')
  call('DEL', key, base .. 'logs:' .. id)
  local tenant = found[1] or 'default'
  place(base .. 'over', id, false)
  place(base .. 'newest', id, false)
  place(base .. 'newest:tenant:' .. tenant, id, false)
  if found[2] then
    place(base .. 'newest:schedule:' .. path(tenant, found[2]), id, false)
  end
  if found[3] then count(tenant, found[3], -1) end
  gone = gone + 1
end
if gone < limit then
  for _, entry in ipairs(call('ZRANGEBYSCORE', base .. 'skipped', '-inf', edge, 'LIMIT', 0, limit - gone)) do
    local tenant, name, row = match(entry, '^([^ ]*) ([^ ]*) (.*)$')
    if tenant then place(base .. 'skipped:' .. path_of(tenant .. ' ' .. name), row, false) end
    place(base .. 'skipped', entry, false)
    gone = gone + 1
  end
end
if gone < limit then
  -- Only expired records are deleted, even if the caller's clock is ahead.
  local past = '(' .. string.format('%.0f', math.min(request[1], now))
  for _, entry in ipairs(call('ZRANGEBYSCORE', base .. 'expiring', '-inf', past, 'LIMIT', 0, limit - gone)) do
    local kind, tenant, name = match(entry, '^([^ ]*) ([^ ]*) (.*)$')
    if kind then
      call('DEL', record_key(kind, tenant, name))
      place(base .. 'kinds:' .. kind, tenant .. ' ' .. name, false)
    end
    place(base .. 'expiring', entry, false)
    gone = gone + 1
  end
end
flush()
return { now, gone }

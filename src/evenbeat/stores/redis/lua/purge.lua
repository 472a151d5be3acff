-- Deletes ended runs and ledger rows that were recorded before an instant, and expired records.
-- request: {before, since or false, limit, skip, states, tenant or false, spared tenants, whether ledger rows and
-- records go, too, runs that are held as {end of fired_by, the instant before which they go}}. With a tenant: up to
-- limit runs of it. Without a tenant, or with runs that are held and one state: it looks at up to limit runs in the
-- order of their ends, after the first skip, and deletes those that are selected.
-- Returns {how many were deleted, the end of the last run that it looked at or false if it saw all, how many runs with
-- that end stay}.

begin()
need_for_runs()
local edge, since = '(' .. string.format('%.0f', request[1]), '-inf'
if request[2] then since = string.format('%.0f', request[2]) end
local limit, tenant, others, held = request[3], request[6], request[8], request[9]
local states, spared = {}, {}
for _, state in ipairs(request[5]) do states[state] = true end
for _, name in ipairs(request[7]) do spared[name] = true end
local gone = 0

local function delete(id, found)
  local owner = found[1] or 'default'
  call('DEL', base .. 'runs:' .. id, base .. 'logs:' .. id)
  place(base .. 'over', id, false)
  if found[3] then place(ended_key(owner, found[3]), id, false) end
  place(base .. 'newest', id, false)
  place(base .. 'newest:tenant:' .. owner, id, false)
  if found[2] then place(base .. 'newest:schedule:' .. path(owner, found[2]), id, false) end
  if found[3] then count(owner, found[3], -1) end
  gone = gone + 1
end

local function is_held(definition, ended)
  local fired_by
  for _, each in ipairs(held) do
    if definition and tonumber(ended) >= each[2] then
      if fired_by == nil then
        local is_read, rest = pcall(cjson.decode, definition)
        fired_by = is_read and type(rest) == 'table' and type(rest.fired_by) == 'string' and rest.fired_by
      end
      if fired_by and sub(fired_by, -#each[1]) == each[1] then return true end
    end
  end
  return false
end

local last, kept = false, 0
if tenant and not next(held) then
  for state in pairs(states) do
    local key = ended_key(tenant, state)
    if fits(key, 'zset') and gone < limit then
      for _, id in ipairs(call('ZRANGEBYSCORE', key, since, edge, 'LIMIT', 0, limit - gone)) do
        local found = read('HMGET', base .. 'runs:' .. id, 'tenant', 'schedule', 'state')
        found[1], found[3] = found[1] or tenant, found[3] or state
        delete(id, found)
      end
    end
  end
elseif next(states) then
  local index = base .. 'over'
  if tenant then index = ended_key(tenant, request[5][1]) end
  local ids = fits(index, 'zset')
      and call('ZRANGEBYSCORE', index, since, edge, 'WITHSCORES', 'LIMIT', request[4], limit) or {}
  kept = request[4]
  for at = 1, #ids, 2 do
    local found
    if next(held) then
      found = read('HMGET', base .. 'runs:' .. ids[at], 'tenant', 'schedule', 'state', 'definition')
    else
      found = read('HMGET', base .. 'runs:' .. ids[at], 'tenant', 'schedule', 'state')
    end
    if tenant then found[1], found[3] = found[1] or tenant, found[3] or request[5][1] end
    if ids[at + 1] ~= last then
      if last or ids[at + 1] ~= since then kept = 0 end
      last = ids[at + 1]
    end
    -- An entry without a run has no state: it goes with any of them.
    if (not found[3] or states[found[3]]) and not spared[found[1] or 'default']
        and not is_held(found[4], ids[at + 1]) then
      delete(ids[at], found)
    else
      kept = kept + 1
    end
  end
  if #ids < 2 * limit then last = false end
end
if others and gone < limit then
  for _, entry in ipairs(call('ZRANGEBYSCORE', base .. 'skipped', '-inf', edge, 'LIMIT', 0, limit - gone)) do
    local owner, name, row = match(entry, '^([^ ]*) ([^ ]*) (.*)$')
    if owner then place(base .. 'skipped:' .. path_of(owner .. ' ' .. name), row, false) end
    place(base .. 'skipped', entry, false)
    gone = gone + 1
  end
end
if others and gone < limit then
  local past = string.format('%.0f', now)
  for _, entry in ipairs(call('ZRANGEBYSCORE', base .. 'expiring', '-inf', past, 'LIMIT', 0, limit - gone)) do
    local kind, owner, name = match(entry, '^([^ ]*) ([^ ]*) (.*)$')
    if kind then
      call('DEL', record_key(kind, owner, name))
      if kind == 'limit' and fits(base .. 'limits', 'hash') then mark('version') end
      place(base .. 'kinds:' .. kind, owner .. ' ' .. name, false)
    end
    place(base .. 'expiring', entry, false)
    gone = gone + 1
  end
end
flush()
return { now, gone, last, kept }

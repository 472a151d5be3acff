-- Finds runs in an index, a part of it at a time, the newest first.
-- request: {index, after (created_at, id) or false, how many to read, how many to find, {field = value}, states
-- or false, the latest created_at or false, names of the fields to return or false for all}. An index is "ids" with a list of them, or the name of a sorted set by -created_at.
-- Returns {the last one read as {created_at, id}, or false at the end; rows}.

local index, after, equal = base .. request[1], request[2], request[5]
local states
if request[6] then
  states = {}
  for _, state in ipairs(request[6]) do states[state] = true end
end

local first = 0
if after then
  local rank = call('ZRANK', index, after[2])
  if rank and tonumber(call('ZSCORE', index, after[2])) == -after[1] then
    first = rank + 1
  else
    -- It was purged meanwhile: start at the first run of its time; the caller drops the runs before it.
    first = call('ZCOUNT', index, '-inf', '(' .. string.format('%.0f', -after[1]))
  end
elseif request[7] then
  first = call('ZCOUNT', index, '-inf', '(' .. string.format('%.0f', -request[7]))
end

local entries = call('ZRANGE', index, first, first + request[3] - 1, 'WITHSCORES')
local rows, last = {}, false
for at = 1, #entries, 2 do
  local id = entries[at]
  local key = base .. 'runs:' .. id
  local found = read('HMGET', key, 'state', 'tenant', 'schedule', 'task', 'queue', 'worker', 'cancel_requested')
  local wanted = found[1] and (not states or states[found[1]])
  if wanted then
    wanted = (not equal.tenant or found[2] == equal.tenant)
      and (not equal.schedule or found[3] == equal.schedule)
      and (not equal.task or found[4] == equal.task)
      and (not equal.queue or found[5] == equal.queue)
      and (not equal.worker or found[6] == equal.worker)
      and (not equal.cancel_requested or (found[7] or 'false') == equal.cancel_requested)
  end
  if wanted then rows[#rows + 1] = run_fields(key, request[8]) end
  if #rows >= request[4] or at + 1 >= request[3] * 2 then
    last = { -tonumber(entries[at + 1]), id }
    break
  end
end
return { now, last, rows }

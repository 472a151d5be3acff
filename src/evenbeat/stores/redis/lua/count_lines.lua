-- Counts the runs of indexes of queued runs. request: {indexes, the time by which runs are due}.
-- Returns for each {number of due runs, of all, the first run_at or false}.

local rows = {}
for at, index in ipairs(request[1]) do
  local key = base .. index
  local first = read('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first[2] then
    rows[at] = { call('ZCOUNT', key, '-inf', request[2]), call('ZCARD', key), tonumber(first[2]) }
  else
    rows[at] = { 0, 0, false }
  end
end
return { now, rows }

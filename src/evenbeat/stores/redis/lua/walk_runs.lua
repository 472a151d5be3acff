-- Reads some fields of the runs of a sorted set, by score, a part at a time.
-- request: {index, the score to begin at, how many of that score to skip, how many to read, names of fields}.
-- Returns {where to continue, as {score, how many of it to skip}, or false at the end; rows of {id, score, values}}.

local from, passed, most, names = request[2], request[3], request[4], request[5]
-- An index of one queue with another type is skipped; one that all runs share is not.
local reader = (find(request[1], '^ready') or find(request[1], '^cohort')) and read or call
local entries = reader('ZRANGEBYSCORE', base .. request[1], from, '+inf', 'WITHSCORES', 'LIMIT', passed, most)
local rows = {}
for at = 1, #entries, 2 do
  local score = entries[at + 1]
  if score == from then
    passed = passed + 1
  else
    from, passed = score, 1
  end
  rows[#rows + 1] = { entries[at], score, read('HMGET', base .. 'runs:' .. entries[at], unpack(names)) }
end
return { now, #rows >= most and { from, passed }, rows }

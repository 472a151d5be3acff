-- Some fields of the runs of a sorted set, by score, a part at a time.
-- asked: {index, the score to begin at, how many of that score to pass over, how many to look at, names of fields}.
-- Answers {where to go on, as {score, how many of it to pass over}, or false at the end; rows of {id, score, values}}.

local from, passed, most, names = asked[2], asked[3], asked[4], asked[5]
-- An index of one queue that holds something else is passed over; one that all runs share is not.
local ask = find(asked[1], '^ready') and read or call
local entries = ask('ZRANGEBYSCORE', base .. asked[1], from, '+inf', 'WITHSCORES', 'LIMIT', passed, most)
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

-- Above this stands a script, as a function `one` of its keys and arguments. Carries out many calls of it, each as if
-- it had come alone: an error is that call's answer, and the others go on.
-- KEYS: those of the first call, those of the second, and so on. ARGV: how many keys each call has, and then the calls'
-- arguments in the same order. Answers with the list of their answers.
local keys = tonumber(ARGV[1])
local calls = #KEYS / keys
local arguments = (#ARGV - 1) / calls
local answers = {}
for call = 0, calls - 1 do
  local first = call * arguments + 2
  local done, answer = pcall(
    one,
    { unpack(KEYS, call * keys + 1, call * keys + keys) },
    { unpack(ARGV, first, first + arguments - 1) }
  )
  if not done and type(answer) ~= 'table' then
    -- The text of a command's error begins with its code. Before Redis 7 a position may come first; an error of Lua
    -- itself has no code.
    answer = tostring(answer)
    answer = { err = string.find(answer, '^%u%u+ ') and answer or 'ERR ' .. answer }
  end
  if answer == nil then
    -- Nil would end the list here. False is sent as nil is.
    answer = false
  end
  answers[call + 1] = answer
end
return answers

"""An agent: the model writes the calculation of a bill, this program works it out."""

import json
import os
import re
import sys
from urllib.request import Request, urlopen

task = json.load(sys.stdin)
rules = "A small firm bills its work. Answer in one line, with the calculation alone, like 3 * 4."
messages = [{"role": "system", "content": rules}, {"role": "user", "content": task["problem"]}]
for _ in range(3):  # a model that writes no calculation is asked again
    body = {"model": task["model"], "messages": messages, "seed": task["seed"]}
    body |= {"temperature": task["temperature"], "max_tokens": task["max_tokens"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    said = json.load(urlopen(request))["choices"][0]["message"]["content"]
    numbers = re.sub(r"[A-Za-z]+(/[A-Za-z]+)?", "", said)  # of "2 weeks * 5 days/week"
    if found := re.search(r"\d+(?: *[-+*/] *\d+)+", numbers):
        print(f"{found[0]} = \\boxed{{{eval(found[0]):g}}}")
        break
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": rules}]
else:
    print(said)

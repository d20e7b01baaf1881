# needs jq: https://jqlang.org
jq '{model: "gpt-5-mini", messages: [{role: "user", content: .problem}]}' |
  curl -sS "$OPENAI_BASE_URL/chat/completions" \
    -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" -d @- |
  jq -r '.choices[0].message.content'

passed=$(grep -c PASS results.txt)
echo "$passed of 4" | awk '{print $1 / $3, $0}'

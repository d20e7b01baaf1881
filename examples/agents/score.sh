passed=$(grep -cs PASS results.txt)
echo "${passed:-0} of 4" | awk '{print $1 / $3, $0}'

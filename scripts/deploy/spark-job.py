"""The program that ``spark-submit`` runs: the command, with the session that it was submitted to.

python -c "from snaprebuild.spark.session import code_archive; print(code_archive('.'))"
spark-submit --master spark://host:7077 --py-files snaprebuild-VERSION.zip scripts/deploy/spark-job.py rebuild SOURCE --engine spark ...
"""

from snaprebuild.__main__ import main

main()

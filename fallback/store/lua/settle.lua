return {'ok'} -- what comes before every script has ended what is over

from property.profiles import load_profile

load_profile()

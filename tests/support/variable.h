/* variable.h: a variable of the environment, set while the object lives. */
#ifndef SWL_TESTS_SIM_VARIABLE_H
#define SWL_TESTS_SIM_VARIABLE_H

#include <stdlib.h>
#include <string>

class Variable
{
  public:
    Variable(const char *variable, const std::string &value) : name(variable)
    {
        setenv(name, value.c_str(), 1);
    }
    ~Variable()
    {
        unsetenv(name);
    }
    Variable(const Variable &) = delete;
    Variable &operator=(const Variable &) = delete;

  private:
    const char *name;
};

#endif

/* layers_alone.c: a program whose linking is the test. */
int main(void)
{
    return 0;
}
